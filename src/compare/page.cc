// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "compare/texts.h"
#include "compare/writers.h"
#include "report/html.h"
#include "report/table.h"

namespace slipstream {
namespace {

using nlohmann::json;

std::vector<Column> columns_of(const GridSpec& grid) {
  std::vector<Column> columns = {
      {"contender",
       "A strategy with its options, or a peer: PyTorch's DistributedDataParallel with one of its communication hooks"},
      {"result",
       "What the training came to on the test set, mean over the seeds; below it the least and the largest. Compare "
       "speeds only between rows whose results satisfy you"},
      {"difference",
       "To the reference, the first contender: points of accuracy, or percent of its loss, inside each seed, then the "
       "mean. Below it how much worse it may be, and whether that holds"},
      {"step ms",
       "Median time of a step in each run, then the median over the runs; below it the least and the largest"},
      {"× dense", "Samples per second over those of ssgd with the same seed, median over the seeds and repeats"},
      {"× 16-bit",
       "Samples per second over those of ssgd:wire=fp16, which sends everything in half the bytes, with the same seed; "
       "median over the seeds and repeats"},
      {"efficiency",
       "Compute and update time as a share of all step time: 100 % means that the network costs nothing. A peer's "
       "compute time is measured beforehand, without its network"},
      {"where the time of a step goes",
       "Mean milliseconds per step over all ranks and runs; the four parts add up. Peers do not tell"},
      {"hidden", "Share of the time on the wire during which the worker was not blocked"},
      {"sent per step",
       "Bytes that one worker sends per step; below it what it sends and receives, divided by what a dense sum moves: "
       "2 (P-1)/P × 4 bytes × parameters each way"},
  };
  if (grid.target) {
    columns.push_back({"time to " + target_name(grid),
                       "Seconds of training until an evaluation was as good as this, median over the runs that got "
                       "there; steps and recoveries count, evaluations do not"});
  }
  return columns;
}

std::string limit_line(const RowResult& result) {
  if (!result.limit) return "";
  const std::string verdict = result.holds == true ? "holds" : result.holds == false ? "does not hold" : "not run";
  return small(fmt::format("limit {}: {}", limit_text(result), verdict), result.holds != true);
}

std::string row_html(const GridSpec& grid, const Row& row, const RowResult& result) {
  std::string html = fmt::format("<th scope=\"row\">{}{}</th>", escape_html(row.contender),
                                 small(row.peer                            ? "PyTorch, a peer"
                                       : row.contender == grid.reference() ? "reference"
                                                                           : ""));
  std::string cells = result.tested     ? (result.by_loss ? "test loss" : "test accuracy")
                      : result.good > 0 ? "last loss"
                                        : "";
  std::string first = "<strong>" + score_text(result) + "</strong>" + small(score_range(result)) + small(cells);
  if (result.failed > 0) first += small(fmt::format("{} of {} failed", result.failed, row.cells.size()), true);
  if (result.missing > 0) first += small(fmt::format("{} of {} not run", result.missing, row.cells.size()), true);
  html += cell(first, "n");
  html += cell(difference_text(result) + limit_line(result), "n");
  html += cell(fixed_text(result.step_ms.middle, 1) + small(step_range(result)), "n");
  html += cell(ratio_text(result.over_dense.middle), "n");
  html += cell(ratio_text(result.over_16_bit.middle), "n");
  html += cell(percent_text(result.efficiency), "n");
  html += cell(phase_bar(result.phases), "split");
  html += cell(percent_text(result.hidden), "n");
  html +=
      cell(bytes_text(result.bytes_sent) +
               small(std::isfinite(result.bytes_of_dense) ? fixed_text(result.bytes_of_dense, 3) + " of dense" : ""),
           "n");
  if (grid.target) html += cell(target_text(grid, result), "n");
  return "<tr>" + html + "</tr>\n";
}

json spread_of(const Spread& spread) {
  return std::isfinite(spread.middle) ? json{spread.middle, spread.least, spread.most} : json(nullptr);
}

json quantity(const char* key, const std::string& title, const char* unit, const char* about) {
  return {{"key", key}, {"title", title}, {"unit", unit}, {"about", about}};
}

}  // namespace

GridPart grid_part(const GridPlan& plan, const Results& results, const CellOutcomes& outcomes) {
  std::string html;
  json data = json::array();
  for (std::size_t s = 0; s < plan.scenarios.size(); ++s) {
    const Scenario& scenario = plan.scenarios[s];
    const GridSpec& grid = plan.grids[scenario.grid];
    std::string rows, below;
    json drawn = json::array();
    bool by_loss = false;
    for (std::size_t r = 0; r < plan.rows.size(); ++r) {
      const Row& row = plan.rows[r];
      if (row.scenario != s) continue;
      const RowResult& result = results.rows[r];
      rows += row_html(grid, row, result);
      by_loss = by_loss || result.by_loss;
      for (const std::string& why : failures_of(plan, row, outcomes)) {
        below += fmt::format("<li class=\"warn\">{} failed, {}</li>\n", escape_html(row.contender), escape_html(why));
      }
      const Spread seconds{result.seconds_to_target, result.seconds_to_target, result.seconds_to_target};
      drawn.push_back({{"contender", row.contender},
                       {"peer", row.peer},
                       {"result", score_text(result)},
                       {"speedup", spread_of(result.over_dense)},
                       {"score", spread_of(result.score)},
                       {"step_ms", spread_of(result.step_ms)},
                       {"target", spread_of(seconds)}});
    }
    for (const Verdict& verdict : results.verdicts[s]) {
      below += fmt::format("<li{}>{}: <strong>{}</strong></li>\n", verdict.holds == true ? "" : " class=\"warn\"",
                           escape_html(verdict.text), holds_text(verdict.holds));
    }
    const bool is_first = s == 0 || plan.scenarios[s - 1].grid != scenario.grid;
    if (is_first && plan.grids.size() > 1) html += fmt::format("<h2>{}</h2>", escape_html(grid.name));
    if (is_first && !grid.about.empty()) html += fmt::format("<p>{}</p>", escape_html(grid.about));
    const std::string title = plan.scenario_text(scenario);
    html += fmt::format("<h3>{}</h3>\n{}", escape_html(title), table(title, columns_of(grid), rows));
    if (!below.empty()) html += "<ul>" + below + "</ul>\n";
    html += fmt::format("<div class=\"figures\" id=\"grid-figures-{}\"></div>\n", s);
    data.push_back(
        {{"rows", drawn},
         {"quantities",
          {quantity("speedup", "Speed-up over dense", "×",
                    "Samples per second over those of ssgd; the line is from the least to the largest seed"),
           quantity("score", "Result", by_loss ? "loss" : "% accuracy",
                    "Mean over the seeds; the line is from the least to the largest"),
           quantity("step_ms", "Step time", "ms", "Median over the runs; the line is from the least to the largest"),
           quantity("target", "Time to " + target_name(grid), "s",
                    "Seconds of training until an evaluation was as good as this; contenders that did not get there "
                    "are not shown")}}});
  }
  const std::string about =
      "Contenders on the same model, samples and network. Ratios are taken inside one seed, then the median over the "
      "seeds.";
  return {"Comparison", fmt::format("<section id=\"grid\"><h2>Contenders</h2><p>{}</p>\n{}</section>\n", about, html),
          data.dump(-1, ' ', true, json::error_handler_t::replace)};
}

std::vector<Run> shown_runs(const GridPlan& plan, const CellOutcomes& outcomes) {
  std::vector<Run> runs;
  for (const Row& row : plan.rows) {
    for (const std::size_t at : row.cells) {
      if (!outcomes[at] || !outcomes[at]->run) continue;
      Run run = *outcomes[at]->run;
      run.name = row.contender;
      const Scenario& scenario = plan.scenario_of(row);
      run.group = (plan.grids.size() > 1 ? plan.grid_of(row).name + ": " : "") + plan.scenario_text(scenario);
      runs.push_back(std::move(run));
      break;
    }
  }
  return runs;
}

}  // namespace slipstream
