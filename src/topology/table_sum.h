// SPDX-License-Identifier: Apache-2.0
//
// TableSum: a sum over all ranks that travels with 8 bits a value (codec/float8.h), for tables that only point out
// where to look, together with a few values that are summed exactly, in fp32. What arrives is added as floats in rank
// order. Bytes that each rank sends, apart from rounding up:
//
//   by owners      2 (P-1) / P × (cells + 4 × exact values) bytes, two delays; the table is rounded twice
//   to everybody   (P-1) × (cells + 4 × exact values) bytes, one delay; the table is rounded once
//
// The results are bit-identical on all ranks; those of the table are off by about 1/8. Blocking; all ranks call it in
// the same order, with the same sizes. A rank alone keeps its values as they are.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstddef>
#include <span>
#include <vector>

#include "topology/way.h"

namespace slipstream {

class TableSum {
 public:
  void sum(Fabric& net, std::span<float> table, std::span<float> exact, Way way);  // in place

  static double bytes_sent(std::size_t cells, std::size_t exact, int ranks, Way way);

 private:
  void sum_whole(Fabric& net, std::span<float> table, std::span<float> exact);

  std::vector<std::byte> out_, in_;  // scratch: a record for every rank
};

}  // namespace slipstream
