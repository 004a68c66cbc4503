// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "compare/writers.h"
#include "slipstream/base/version.h"

namespace slipstream {
namespace {

using json = nlohmann::ordered_json;

json value_of(double x) { return std::isfinite(x) ? json(x) : json(nullptr); }  // JSON has no NaN
json spread_of(const Spread& spread, const char* middle) {
  return {{middle, value_of(spread.middle)}, {"min", value_of(spread.least)}, {"max", value_of(spread.most)}};
}
template <typename T>
json optional_of(const std::optional<T>& x) {
  return x ? json(*x) : json(nullptr);
}

json cell_of(const GridPlan& plan, const Cell& cell, const std::optional<CellOutcome>& outcome) {
  json made{{"seed", cell.seed}, {"repeat", cell.repeat}, {"folder", "cells/" + cell.key}, {"command", cell.arguments}};
  made["state"] = !outcome ? "not run" : outcome->run ? "done" : "failed";
  if (!outcome) return made;
  made["seconds"] = outcome->seconds;
  if (!outcome->failed.empty()) made["failed"] = outcome->failed;
  if (!outcome->run) return made;
  const Run& run = *outcome->run;
  made["step_ms"] = value_of(run.step_ms_median);
  made["samples_per_second"] = value_of(run.samples_per_second);
  made["efficiency"] = value_of(run.efficiency);
  made["bytes_sent_per_step"] = value_of(run.bytes_sent_per_step);
  made["final_loss"] = value_of(run.final_loss);
  if (!run.metric.empty()) made[run.metric] = value_of(run.metric_value);
  if (const auto& target = plan.grid_of(plan.row_of(cell)).target) {
    made["seconds_to_target"] = optional_of(seconds_to_target(run, *target));
  }
  return made;
}

json row_of(const GridPlan& plan, const Row& row, const RowResult& result, const CellOutcomes& outcomes) {
  json made{{"contender", row.contender},
            {"peer", row.peer},
            {"cells_done", result.good},
            {"cells_failed", result.failed},
            {"cells_not_run", result.missing}};
  made["metric"] = result.good == 0 ? json(nullptr)
                                    : json(!result.tested   ? "final_loss"
                                           : result.by_loss ? "test_loss"
                                                            : "test_accuracy_percent");
  made["result"] = spread_of(result.score, "mean");
  made["difference"] = value_of(result.difference);
  made["step_ms"] = spread_of(result.step_ms, "median");
  made["samples_per_second"] = value_of(result.samples_per_second);
  made["speedup_over_dense"] = spread_of(result.over_dense, "median");
  made["speedup_over_16_bit"] = spread_of(result.over_16_bit, "median");
  made["efficiency"] = value_of(result.efficiency);
  const bool split = result.phases.sum_ms() > 0;
  made["ms_per_step"] = !split ? json(nullptr)
                               : json{{"compute", result.phases.compute_ms},
                                      {"update", result.phases.update_ms},
                                      {"encode", result.phases.encode_ms},
                                      {"exposed", result.phases.waiting_ms}};
  made["hidden_fraction"] = value_of(result.hidden);
  made["bytes_sent_per_step"] = value_of(result.bytes_sent);
  made["bytes_of_dense"] = value_of(result.bytes_of_dense);
  if (plan.grid_of(row).target) {
    made["target_reached"] = result.reached;
    made["seconds_to_target"] = value_of(result.seconds_to_target);
  }
  if (result.limit) made.update({{"limit", *result.limit}, {"holds", optional_of(result.holds)}});
  made["cells"] = json::array();
  for (const std::size_t cell : row.cells) made["cells"].push_back(cell_of(plan, plan.cells[cell], outcomes[cell]));
  return made;
}

}  // namespace

std::string results_json(const GridPlan& plan, const Results& results, const CellOutcomes& outcomes) {
  json all{{"version", version()}, {"misses", results.misses(plan)}, {"scenarios", json::array()}};
  for (std::size_t s = 0; s < plan.scenarios.size(); ++s) {
    const Scenario& scenario = plan.scenarios[s];
    const GridSpec& grid = plan.grids[scenario.grid];
    json made{{"grid", grid.name},
              {"about", grid.about},
              {"model", scenario.model},
              {"link", scenario.link},
              {"workers", scenario.workers},
              {"train", grid.train},
              {"reference", grid.reference()},
              {"target", optional_of(grid.target)},
              {"rows", json::array()},
              {"claims", json::array()}};
    for (std::size_t r = 0; r < plan.rows.size(); ++r) {
      if (plan.rows[r].scenario == s) made["rows"].push_back(row_of(plan, plan.rows[r], results.rows[r], outcomes));
    }
    for (const Verdict& verdict : results.verdicts[s]) {
      made["claims"].push_back({{"claim", verdict.text}, {"holds", optional_of(verdict.holds)}});
    }
    all["scenarios"].push_back(std::move(made));
  }
  return all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace slipstream
