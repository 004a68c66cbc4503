// SPDX-License-Identifier: Apache-2.0
//
// PickExchange: the ranks add up their values position by position (all have the same number of them), and all ranks
// get the largest sums with their positions. Cheaper than a sum of everything where few sums are wanted: a rank sends
// each value once, and only the picks come back.
//
// Position j belongs to rank j mod P. Everybody sends each owner its values; the owner adds them in rank order, picks
// its share of the `picks` largest and sends those to everybody. Or everybody sends everything to everybody, and all
// pick what the owners would. Bytes that each rank sends, apart from rounding up:
//
//   by owners      (P-1) / P × (count × width + picks × width + count / 8) bytes, two delays
//   to everybody   (P-1) × count × width bytes, one delay
//
// width: bytes of a value in the format (codec/value_format.h). Dealing positions in turn makes the owners' shares
// resemble each other, so that the largest of every share are nearly the largest of all; exactly so where everything is
// picked, or there is one rank.
//
// Formats shorter than fp32 round values when they are sent, and owners' sums once more. That difference need not be
// lost: a rank's values become what the others read, and an owner is told what its sums lost. Sums are bit-identical on
// all ranks. Blocking; all ranks call it in the same order, with the same sizes.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/sparse.h"
#include "codec/topk.h"
#include "codec/value_format.h"
#include "topology/way.h"

namespace slipstream {

// The rule by which PickExchange picks, for callers that have all sums already. Returns positions, ascending, and sums.
Sparse pick_by_shares(std::span<const float> sums, std::size_t picks, int ranks, TopK& select);

class PickExchange {
 public:
  // Returns the picks, positions in ascending order. `values` become what was sent of them. `lost` receives what
  // rounding took from the picked sums that this rank owns.
  Sparse pick(Fabric& net, std::span<float> values, std::size_t picks, ValueFormat format, Way way, Sparse& lost);

  static double bytes_sent(std::size_t count, std::size_t picks, int ranks, ValueFormat format, Way way);

 private:
  Sparse pick_of_everybodys(Fabric& net, std::span<float> values, std::size_t picks, ValueFormat format);

  std::vector<std::byte> out_, in_, mine_, all_;  // scratch
  std::vector<float> sums_;
  TopK select_;
};

}  // namespace slipstream
