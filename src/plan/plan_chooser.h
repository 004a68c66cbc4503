// SPDX-License-Identifier: Apache-2.0
//
// PlanChooser: the planner for `auto`. It predicts what ssgd (also with 16 bits), lags, gs and topk (with `local` also
// dasgd) would do with the job, and names the one that the plan recommends. Takes some seconds.
#pragma once

#include <slipstream/strategy/registry.h>

#include "strategy/chooser.h"

namespace slipstream {

class PlanChooser final : public Chooser {
 public:
  // The registry must outlive it. Without `costs`, encoding takes no time, and the choice depends on the profile alone.
  explicit PlanChooser(const Registry& registry, bool costs = true) : registry_(registry), costs_(costs) {}

  Choice choose(const JobProfile& profile, bool local) const override;
  std::unique_ptr<Strategy> make(const std::string& strategy) const override;

 private:
  const Registry& registry_;
  const bool costs_;
};

}  // namespace slipstream
