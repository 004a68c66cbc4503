// SPDX-License-Identifier: Apache-2.0
//
// PickExchange: of as many values on every rank, position by position, the largest sums, with what they are, on all
// ranks. Cheaper than a sum of everything where few of the sums are wanted: a rank sends each value once, and only what
// was picked comes back.
//
// Position j belongs to rank j mod P. Everybody sends each owner its values; the owner adds them in rank order, picks
// its share of the `picks` largest and sends those to everybody. Or everybody sends everything to everybody, and all
// pick what the owners would. From every rank, but for rounding up:
//
//   by owners      (P-1) / P × (count × width + picks × width + count / 8) bytes, two delays
//   to everybody   (P-1) × count × width bytes, one delay
//
// width being that of the format (codec/value_format.h). Positions dealt in turn make the owners' shares resemble each other, so that the
// largest of every share are nearly the largest of all; where everything is picked, or there is one rank, they are.
//
// Formats shorter than fp32 round values when they leave, and owners' sums once more. Nobody has to lose what that takes
// away: a rank's values become what the others read, and an owner is told what its sums lost. Sums are bit-identical on
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

// The rule by which PickExchange picks, for who has all the sums already: the positions, in ascending order, and sums.
Sparse pick_by_shares(std::span<const float> sums, std::size_t picks, int ranks, TopK& select);

class PickExchange {
 public:
  // Positions in ascending order. `values` become what was sent of them. Of the positions that this rank owns, `lost`
  // receives what rounding took from the sums.
  Sparse pick(Fabric& net, std::span<float> values, std::size_t picks, ValueFormat format, Way way, Sparse& lost);

  static double bytes_sent(std::size_t count, std::size_t picks, int ranks, ValueFormat format, Way way);

 private:
  Sparse pick_of_everybodys(Fabric& net, std::span<float> values, std::size_t picks, ValueFormat format);

  std::vector<std::byte> out_, in_, mine_, all_;  // scratch
  std::vector<float> sums_;
  TopK select_;
};

}  // namespace slipstream
