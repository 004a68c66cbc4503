// SPDX-License-Identifier: Apache-2.0
//
// The planner: what every strategy would do with a job (plan/plan_predict.h), the options it recommends for strategies
// that have a dial, and the one to take.
//
// Dials are tried from the mildest value to the strongest; the mildest whose steps are within 3 % of the fastest is
// recommended. The advice is given twice: among strategies whose workers have equal weights after every step, which
// train as synchronous SGD does, and among all. Of the strategies within 5 % of the fastest, the one that changes
// training least is named, in the order of kPreference.
#pragma once

#include <slipstream/strategy/registry.h>

#include <functional>
#include <string>
#include <vector>

#include "plan/plan_predict.h"

namespace slipstream {

struct PlanRequest {
  std::vector<std::string> strategies{};                         // NAME or NAME:KEY=VALUE,…; empty: all there are
  bool dials = true;                                             // try other options for those given without any
  std::function<void(const std::string& contender)> on_begin{};  // progress
};

struct Advice {
  std::string strategy;  // empty: none fits
  std::string why;
};

struct Plan {
  PlanProfile profile;
  std::string link{};                     // what the user called it
  std::vector<Prediction> predictions{};  // in the order asked for
  Advice synchronous{}, any{};

  const Prediction* find(std::string_view name) const;  // by name alone; null if there is none
};

// ConfigError for strategies or options that do not exist.
Plan make_plan(const PlanProfile& profile, const PlanRequest& request, const Registry& registry);

std::string plan_text(const Plan& plan);  // for a terminal of 80 columns
std::string plan_json(const std::vector<Plan>& plans);

}  // namespace slipstream
