// SPDX-License-Identifier: Apache-2.0
//
// LagsStatistics: how well the memory of each sparse group of LAGS does, looked at in every 50th step and agreed by all
// ranks:
//
//   delta  |mean of e|² ÷ ((1 - k/d) |mean of (e + s)|²): what the workers' selections left of their mean memory, next
//          to what k random entries of d would leave. The paper's proof assumes that it is at most 1
//   owed   |e| ÷ |direction(g)|, root mean square over the workers: how many gradients' worth is waiting
//   age    steps since an entry that was sent was sent last, the mean; -1 where nobody remembers (no momentum)
//
// with e what a worker owes after it has sent s. Norms of means come from sketches of e and e + s with 256 cells, whose
// sum over the workers is the sketch of the sum (codec/count_sketch): delta is right to about a tenth.
//
// The figures are summed in the background and read one step later, so nobody waits for them: one pass over the memory,
// 2 KiB on the wire and some entries for every group, once in 50 steps. It decides nothing.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codec/count_sketch.h"
#include "codec/sparse.h"

namespace slipstream {

struct LagsFigures {
  std::string group;
  double delta = 0, owed = 0, age = 0;
};

class LagsStatistics {
 public:
  LagsStatistics();

  static constexpr std::int64_t kEvery = 50;  // steps
  static bool samples(std::int64_t t) { return (t + 1) % kEvery == 0; }

  // A sparse group of this step: what it owes after `sent` has left, the square of its direction's norm, the mean age of
  // what was sent.
  void note(std::string group, std::span<const float> owed, const Sparse& sent, double direction_squared, double age);
  void start(Fabric& net);  // at the end of the step: sends what was noted

  // What was started, once; waits for it. Empty where nothing was.
  std::vector<LagsFigures> take();

  static double bytes_sent(std::size_t groups, int ranks);

 private:
  struct Noted {
    std::string group;
    double keeps = 0;  // 1 - k/d
  };

  CountSketch sketch_;
  std::vector<Noted> noted_;
  std::vector<float> rows_;  // by group: both sketches, |e|², |direction|², age; then their sums
  int ranks_ = 1;
  InFlight sum_;  // last: it uses the memory above
};

std::string describe(const std::vector<LagsFigures>& figures);

}  // namespace slipstream
