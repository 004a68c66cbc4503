// SPDX-License-Identifier: Apache-2.0
//
// Local SGD: several steps alone, then a blocking average of the weights.
//
//   S. U. Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019, arXiv 1805.09767;
//   warm-up: T. Lin et al., "Don't Use Large Mini-Batches, Use Local SGD" (post-local SGD), ICLR 2020, arXiv
//   1808.07217.
//
//   each step t:
//     (1)  in the warm-up:  w <- w - step(mean of all workers' g)      plain S-SGD
//     (2)  else:            w <- w - step(g)                           own gradient, own optimizer state
//     (3)  every tau steps: w <- mean of all workers' w                blocking
//
// Communicated per step and worker: 2 (P-1)/P × 4 bytes × parameters / tau on average, each way.
// The optimizer's state (velocity, moments) stays local and is kept across averages. Clipping limits the own gradient.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include "schedule/every.h"
#include "schedule/warmup.h"

namespace slipstream {

struct LocalSgdOptions {
  std::int64_t period = 4;  // changes the result
  std::int64_t warmup_steps = 0;

  void describe(OptionSet& o);
};

class LocalSgd final : public Strategy {
 public:
  using Options = LocalSgdOptions;
  explicit LocalSgd(const Options& options) : warmup_{options.warmup_steps}, average_{options.period} {}

  static StrategyInfo info();
  static double bytes_sent(const Options& options, const TrafficQuery& q);

  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor&) override {}  // nothing outlives a step but the weights

 private:
  Warmup warmup_;
  Every average_;  // counted from the end of the warm-up
};

}  // namespace slipstream
