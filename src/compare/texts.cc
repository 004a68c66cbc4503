// SPDX-License-Identifier: Apache-2.0
#include "compare/texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/html.h"

namespace slipstream {
namespace {

std::string range_text(const Spread& spread, int cells, int digits) {
  if (cells < 2) return "";
  return fmt::format("{}–{}", fixed_text(spread.least, digits), fixed_text(spread.most, digits));
}

int score_digits(const RowResult& row) { return row.by_loss ? 4 : 2; }

}  // namespace

std::string score_text(const RowResult& row) {
  if (row.good == 0) return "–";
  return fixed_text(row.score.middle, score_digits(row)) + (row.by_loss ? "" : " %");
}

std::string score_range(const RowResult& row) { return range_text(row.score, row.good, score_digits(row)); }

std::string difference_text(const RowResult& row) {
  if (!std::isfinite(row.difference)) return "–";
  return fmt::format("{:+.2f}{}", row.difference, row.by_loss ? " %" : "");
}

std::string step_range(const RowResult& row) { return range_text(row.step_ms, row.good, 1); }

std::string ratio_text(double ratio) { return std::isfinite(ratio) ? fmt::format("{:.2f} ×", ratio) : "–"; }

std::string target_name(const GridSpec& grid) {
  if (!grid.target) return "";
  return grid.by_loss() ? fmt::format("{:g}", *grid.target) : fmt::format("{:g} %", 100 * *grid.target);
}

std::string target_text(const GridSpec& grid, const RowResult& row) {
  if (!grid.target || row.good == 0) return "–";
  if (row.reached == 0) return "not reached";
  const std::string time = fixed_text(row.seconds_to_target, 1) + " s";
  return row.reached == row.good ? time : fmt::format("{} ({} of {})", time, row.reached, row.good);
}

std::string limit_text(const RowResult& row) {
  return row.limit ? fmt::format("{:g} {}", *row.limit, row.by_loss ? "%" : "points") : "";
}

std::string holds_text(const std::optional<bool>& holds) { return !holds ? "not run" : *holds ? "yes" : "no"; }

std::string clock_text(double seconds) {
  const auto all = static_cast<std::int64_t>(std::max(0.0, std::isfinite(seconds) ? seconds + 0.5 : 0));
  if (all < 3600) return fmt::format("{}:{:02}", all / 60, all % 60);
  return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
}

std::vector<std::string> failures_of(const GridPlan& plan, const Row& row, const CellOutcomes& outcomes) {
  std::vector<std::pair<std::string, std::string>> causes;  // why, seeds
  for (const std::size_t at : row.cells) {
    if (!outcomes[at] || outcomes[at]->failed.empty()) continue;
    const std::string& why = outcomes[at]->failed;
    auto known = std::find_if(causes.begin(), causes.end(), [&](const auto& cause) { return cause.first == why; });
    if (known == causes.end()) known = causes.insert(causes.end(), {why, "seed"});
    const bool first = known->second == "seed";
    known->second += fmt::format("{} {}", first ? "" : ",", plan.cells[at].seed);
  }
  std::vector<std::string> texts;
  for (const auto& [why, seeds] : causes) texts.push_back(seeds + ": " + why);
  return texts;
}

std::string shell_text(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789-_=.,:/%@+") == std::string::npos;
    if (!line.empty()) line += ' ';
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace slipstream
