// SPDX-License-Identifier: Apache-2.0
#include "report/timeline.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

namespace slipstream {
namespace {

using nlohmann::json;

using Ranks = std::map<int, std::map<int, TimelineRow>>;

const std::vector<TimelineSpan>* steps_of_first_rank(const Ranks& ranks) {
  for (const auto& [pid, rows] : ranks) {
    for (const auto& [tid, row] : rows) {
      if (row.name == "steps" && !row.spans.empty()) return &row.spans;
    }
  }
  return nullptr;
}

double end_of(const TimelineSpan& span) { return span.began_ms + span.lasted_ms; }

// The window to show: the last `most` steps of the last stretch without a gap that has so many, else of the longest.
std::pair<double, double> choose_window(const std::vector<TimelineSpan>& steps, std::size_t most) {
  std::size_t first = 0, best_first = 0, best_end = 0;
  for (std::size_t end = 1; end <= steps.size(); ++end) {
    const TimelineSpan& last = steps[end - 1];
    if (end < steps.size() && steps[end].began_ms - end_of(last) < 0.2 * last.lasted_ms) continue;
    const std::size_t had = std::min(best_end - best_first, most), has = std::min(end - first, most);
    if (has >= had) best_first = end - has, best_end = end;
    first = end;
  }
  return {steps[best_first].began_ms, end_of(steps[best_end - 1])};
}

Timeline gathered(const json& events, std::size_t steps) {
  std::map<int, std::string> names;
  Ranks ranks;
  for (const json& event : events) {
    const std::string kind = event.at("ph");
    const int pid = event.at("pid"), tid = event.value("tid", 0);
    if (kind == "M") {
      const std::string name = event.at("args").at("name");
      (event.at("name") == "process_name" ? names[pid] : ranks[pid][tid].name) = name;
    } else if (kind == "X") {
      const double began = event.at("ts"), lasted = event.at("dur");
      const bool background = event.contains("args") && event["args"].value("background", false);
      ranks[pid][tid].spans.push_back({began / 1e3, lasted / 1e3, event.at("name"), background});
    }
  }
  const auto* all_steps = steps_of_first_rank(ranks);
  if (all_steps == nullptr) return {};
  const auto [began, ended] = choose_window(*all_steps, steps);
  Timeline timeline;
  for (auto& [pid, rows] : ranks) {
    TimelineRank& rank = timeline.emplace_back();
    rank.name = names[pid];
    for (auto& [tid, row] : rows) {
      TimelineRow kept{row.name, {}};
      for (TimelineSpan& span : row.spans) {
        if (end_of(span) <= began || span.began_ms >= ended) continue;
        span.began_ms -= began;
        kept.spans.push_back(std::move(span));
      }
      if (!kept.spans.empty()) rank.rows.push_back(std::move(kept));
    }
    if (rank.rows.empty()) timeline.pop_back();
  }
  return timeline;
}

}  // namespace

Timeline read_timeline(std::istream& trace, const std::string& name, std::size_t steps) {
  try {
    return gathered(json::parse(trace).at("traceEvents"), steps);
  } catch (const json::exception& e) {
    fail<DataError>("{} is not a trace of `slipstream train`: {}", name, e.what());
  }
}

Timeline read_timeline(const std::filesystem::path& file, std::size_t steps) {
  std::ifstream stream(file);
  if (!stream) fail<DataError>("cannot read {}", file.string());
  return read_timeline(stream, file.string(), steps);
}

}  // namespace slipstream
