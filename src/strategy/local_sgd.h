// SPDX-License-Identifier: Apache-2.0
//
// Local SGD: several steps alone, then a blocking average of the weights. See cards/local.md.
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

  static double bytes_sent(const Options& options, const TrafficQuery& q);

  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor&) override {}  // nothing outlives a step but the weights

 private:
  Warmup warmup_;
  Every average_;  // counted from the end of the warm-up
};

}  // namespace slipstream
