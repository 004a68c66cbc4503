// SPDX-License-Identifier: Apache-2.0
//
// SparseTree: about the k largest entries of a sum of sparse vectors, of which every rank has one with k entries. Up
// the binomial tree every rank adds its children's entries to its own, the nearest child first, and keeps the k
// largest; rank 0's are copied to all. Of equal magnitudes the lower index wins, so the result is a function of the
// entries, bit-identical on all ranks. A rank hands to its caller what it did not keep and what a short number format
// took from what it sent on: the result plus everything dropped is the sum.
//
// Records are padded to a size that all ranks know from (k, dimension). Blocking; all ranks call it in the same order.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstddef>
#include <vector>

#include "codec/sparse.h"
#include "codec/sparse_payload.h"
#include "codec/topk.h"

namespace slipstream {

class SparseTree {
 public:
  explicit SparseTree(ValueFormat format) : format_(format) {}

  // `entries` must have the same number of entries on every rank and becomes the result; what this rank dropped goes to
  // `dropped` (an index may occur several times).
  void reduce(Fabric& net, Sparse& entries, std::size_t dimension, Sparse& dropped);

  // Bytes `rank` of `size` sends for k entries.
  static double bytes_sent(std::size_t k, std::size_t dimension, ValueFormat format, int rank, int size);

 private:
  void merge(Sparse& entries, const Sparse& more, Sparse& dropped);
  void drop_rounding(const Sparse& entries, Sparse& dropped);

  ValueFormat format_;
  std::vector<std::byte> record_;
  Sparse both_, largest_;  // scratch
  TopK select_;
};

}  // namespace slipstream
