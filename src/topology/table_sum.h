// SPDX-License-Identifier: Apache-2.0
//
// TableSum: a sum over all ranks that travels with 8 bits a value (codec/float8.h), for tables that only point out where
// to look. Every rank owns a share: it gets everybody's part of it, adds them as floats in rank order, and sends the
// result to all. Two delays, and 2 (P-1)/P bytes of every value from every rank, but for rounding up.
//
// The result is bit-identical on all ranks, and about 1/8 off. Blocking; all ranks call it in the same order, with the
// same sizes. A rank alone keeps its values as they are.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstddef>
#include <span>
#include <vector>

namespace slipstream {

class TableSum {
 public:
  // The two halves of a sum in place. Between them other operations may be started.
  void scatter(Fabric& net, std::span<const float> values);  // to the owners, which add
  void gather(Fabric& net, std::span<float> values);         // the results

  static double bytes_sent(std::size_t count, int ranks);

 private:
  std::vector<std::byte> out_, in_;  // a record for every rank
  std::vector<float> total_, part_;  // of our share: the sum; scratch
};

}  // namespace slipstream
