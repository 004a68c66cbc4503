// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "compare/texts.h"
#include "compare/writers.h"
#include "report/html.h"

namespace slipstream {
namespace {

// A text that is plain inside a Markdown table.
std::string plain(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '`' || c == '\\') safe += '\\';
    safe += c == '\n' || c == '\r' ? ' ' : c;
  }
  return safe;
}

std::string with_range(const std::string& text, const std::string& range) {
  return range.empty() ? text : fmt::format("{} ({})", text, range);
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

struct Shown {
  bool target = false, limits = false;
};

std::string head(const GridSpec& grid, const Shown& shown) {
  std::vector<std::string> names = {"contender",  "result",     "difference",  "step ms",      "× dense",
                                    "× 16-bit",   "efficiency", "compute ms",  "update ms",    "encode ms",
                                    "exposed ms", "hidden",     "sent a step", "bytes ÷ dense"};
  if (shown.target) names.push_back("time to " + target_name(grid));
  if (shown.limits) names.insert(names.end(), {"limit", "holds"});
  std::string line = line_of(names) + "|---|";
  for (std::size_t i = 1; i < names.size(); ++i) line += "---:|";
  return line + "\n";
}

std::string row_line(const GridSpec& grid, const Row& row, const RowResult& result, const Shown& shown) {
  const bool split = result.phases.sum_ms() > 0;
  const auto ms = [split](double value) { return split ? fixed_text(value, 1) : "–"; };
  std::string name = plain(row.contender) + (row.peer ? " (peer)" : "");
  if (result.failed > 0) name += fmt::format(", failed {} of {}", result.failed, row.cells.size());
  if (result.missing > 0) name += fmt::format(", not run {} of {}", result.missing, row.cells.size());
  std::vector<std::string> cells = {name,
                                    with_range(score_text(result), score_range(result)),
                                    difference_text(result),
                                    with_range(fixed_text(result.step_ms.middle, 1), step_range(result)),
                                    ratio_text(result.over_dense.middle),
                                    ratio_text(result.over_16_bit.middle),
                                    percent_text(result.efficiency),
                                    ms(result.phases.compute_ms),
                                    ms(result.phases.update_ms),
                                    ms(result.phases.encode_ms),
                                    ms(result.phases.waiting_ms),
                                    percent_text(result.hidden),
                                    bytes_text(result.bytes_sent),
                                    fixed_text(result.bytes_of_dense, 3)};
  if (shown.target) cells.push_back(target_text(grid, result));
  if (shown.limits) {
    cells.push_back(limit_text(result));
    cells.push_back(!result.limit ? "" : result.holds == false ? "**no**" : holds_text(result.holds));
  }
  return line_of(cells);
}

}  // namespace

std::string results_markdown(const GridPlan& plan, const Results& results, const CellOutcomes& outcomes) {
  std::string text = "# Comparison\n";
  for (std::size_t s = 0; s < plan.scenarios.size(); ++s) {
    const Scenario& scenario = plan.scenarios[s];
    const GridSpec& grid = plan.grids[scenario.grid];
    const bool is_first = s == 0 || plan.scenarios[s - 1].grid != scenario.grid;
    if (is_first)
      text += fmt::format("\n## {}\n{}", plain(grid.name), grid.about.empty() ? "" : "\n" + plain(grid.about) + "\n");
    text += fmt::format("\n### {}\n\n", plain(plan.scenario_text(scenario)));
    Shown shown{grid.target.has_value(), grid.limit.has_value() || !grid.limits.empty()};
    text += head(grid, shown);
    std::string below;
    for (std::size_t r = 0; r < plan.rows.size(); ++r) {
      const Row& row = plan.rows[r];
      if (row.scenario != s) continue;
      text += row_line(grid, row, results.rows[r], shown);
      for (const std::string& why : failures_of(plan, row, outcomes)) {
        below += fmt::format("- failed: {}, {}\n", plain(row.contender), plain(why));
      }
    }
    for (const Verdict& verdict : results.verdicts[s]) {
      below +=
          fmt::format("- {}: {}\n", plain(verdict.text), verdict.holds == false ? "**no**" : holds_text(verdict.holds));
    }
    text += (below.empty() ? "" : "\n") + below;
  }
  text += "\nCommands, of the first seed:\n\n";
  for (const Row& row : plan.rows) {
    text += fmt::format("- {}: `slipstream {}`\n", plain(plan.scenario_text(plan.scenario_of(row))),
                        shell_text(plan.cells[row.cells.front()].arguments));
  }
  return text;
}

}  // namespace slipstream
