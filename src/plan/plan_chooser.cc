// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_chooser.h"

#include <algorithm>

#include "plan/plan.h"
#include "plan/plan_predict.h"

namespace slipstream {
namespace {

constexpr double kTelling = 0.25;  // share of the time on the wire that is hidden

}  // namespace

Chooser::Choice PlanChooser::choose(const JobProfile& job, bool local) const {
  PlanProfile profile;
  profile.workers = job.workers;
  for (const Slot& slot : job.model.slots()) profile.parameters.push_back({slot.name, slot.count, slot.rows});
  profile.take_times(job.compute_s);
  profile.update_s = job.update_s;
  profile.take_link(job.link);
  profile.costs = costs_;
  profile.optimizer = job.optimizer;
  // What dense steps took beyond the simulated ones is what hidden bytes take from computing, or a worker that is often
  // late. It cannot be told from the link's own time where hardly anything is hidden.
  const Prediction dense = Predictor(profile, registry_).predict({"ssgd", {}});
  if (dense.refused.empty() && dense.hidden > kTelling && dense.bytes_sent > 0) {
    profile.io_s_per_byte = std::max(0.0, job.dense_step_s - dense.step_s) / (2 * dense.hidden * dense.bytes_sent);
  }
  PlanRequest request{.strategies = {"ssgd", "ssgd:wire=bf16", "lags", "gs", "topk"}, .dials = false};
  if (local) request.strategies.insert(request.strategies.end(), {"dasgd:period=8", "dasgd:period=32"});
  std::erase_if(request.strategies, [this](const std::string& text) {
    const auto& all = registry_.all();
    return std::none_of(all.begin(), all.end(),
                        [&](const StrategyInfo& info) { return info.name == Contender::parse(text).name; });
  });
  const Plan plan = make_plan(profile, request, registry_);
  const Advice& advice = local ? plan.any : plan.synchronous;
  return advice.strategy.empty() ? Choice{"ssgd", "nothing else fits"} : Choice{advice.strategy, advice.why};
}

std::unique_ptr<Strategy> PlanChooser::make(const std::string& strategy) const {
  const Contender one = Contender::parse(strategy);
  return registry_.configure(one.name, one.set).make();
}

}  // namespace slipstream
