// SPDX-License-Identifier: Apache-2.0
//
// SparseGather: the sum of sparse vectors over all ranks, by sending everybody's to everybody. One message in flight
// per object. Records are padded to a size that all ranks know from (entries, dimension), so one gather suffices; they
// are added in rank order, so the sum is bit-identical on all ranks.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/sparse_payload.h"

namespace slipstream {

class SparseGather {
 public:
  explicit SparseGather(ValueFormat format) : format_(format) {}

  // `entries` must have the same number of entries on every rank.
  void start(Fabric& net, const Sparse& entries, std::size_t dimension);

  void wait() { gather_.wait(); }

  // Waits; out = out + scale × sum over ranks, touching only elements that somebody sent. `out` has `dimension`
  // elements. May be repeated.
  void finish_adding(std::span<float> out, float scale);

  bool done() const { return gather_.done(); }

  // Bytes each rank sends for `count` entries.
  static double bytes_sent(std::size_t count, std::size_t dimension, ValueFormat format, int ranks);

 private:
  ValueFormat format_;
  std::vector<std::byte> mine_, all_;
  InFlight gather_;  // last: it uses the memory above
};

}  // namespace slipstream
