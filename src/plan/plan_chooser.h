// SPDX-License-Identifier: Apache-2.0
//
// PlanChooser: the planner as `auto` asks it. It predicts what ssgd, lags, gs and topk (with `local` also dasgd) would do
// with the job, and names the one that the plan advises. Takes some seconds.
#pragma once

#include <slipstream/strategy/registry.h>

#include "strategy/chooser.h"

namespace slipstream {

class PlanChooser final : public Chooser {
 public:
  // The registry must outlive it. Without `costs` encoding takes no time, and the choice follows from the profile alone.
  explicit PlanChooser(const Registry& registry, bool costs = true) : registry_(registry), costs_(costs) {}

  Choice choose(const JobProfile& profile, bool local) const override;
  std::unique_ptr<Strategy> make(const std::string& strategy) const override;

 private:
  const Registry& registry_;
  const bool costs_;
};

}  // namespace slipstream
