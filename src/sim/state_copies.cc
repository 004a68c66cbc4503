// SPDX-License-Identifier: Apache-2.0
#include "sim/state_copies.h"

#include <slipstream/base/error.h>

#include "checkpoint/folder.h"
#include "sim/sim_job.h"

namespace slipstream {

std::optional<double> state_copies(const StrategyInfo& strategy, const OptimizerOptions& optimizer) {
  SimJobOptions job;
  job.world.ranks = 2;
  job.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {50'000, 10, 50'000}});
  job.make_strategy = strategy.configure().make;
  job.optimizer = optimizer;
  job.steps = 2;
  job.stop_after = 1;
  try {
    const SimJobResult result = run_sim_job(job);
    double floats = 0, weights = 0;
    for (const auto& [name, value] : result.saved.value().ranks.front().entries()) {
      const auto* held = std::get_if<std::vector<float>>(&value);
      if (held == nullptr) continue;
      const auto count = static_cast<double>(held->size());
      if (name.starts_with(kModelPrefix)) {
        weights += count;
      } else {
        floats += name.ends_with("/age") ? count / 4 : count;  // those take a byte each
      }
    }
    return floats / weights;
  } catch (const ConfigError&) {
    return {};
  }
}

}  // namespace slipstream
