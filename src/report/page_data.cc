// SPDX-License-Identifier: Apache-2.0
#include "report/page_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "report/tables.h"

namespace slipstream {
namespace {

using nlohmann::json;

constexpr std::size_t kMostPoints = 100;  // of a curve

// JSON has no NaN. Milliseconds keep three decimals: a microsecond.
json value_of(double x) { return std::isfinite(x) ? json(std::round(x * 1e6) / 1e6) : json(nullptr); }
json ms_of(double x) { return std::round(x * 1e3) / 1e3; }

json moment_of(const Moment& at) {
  return {{"step", at.step}, {"s", value_of(at.seconds)}, {"samples", value_of(at.samples)}};
}

json losses_of(const Run& run) {
  const std::size_t stretch = (run.losses.size() + kMostPoints - 1) / kMostPoints;
  json points = json::array();
  for (std::size_t first = 0; first < run.losses.size(); first += stretch) {
    const std::size_t end = std::min(first + stretch, run.losses.size());
    double sum = 0;
    int finite = 0;
    for (std::size_t i = first; i < end; ++i) {
      if (!std::isfinite(run.losses[i].loss)) continue;
      sum += run.losses[i].loss;
      ++finite;
    }
    json point = moment_of(run.losses[end - 1]);
    point["y"] = finite > 0 ? value_of(sum / finite) : json(nullptr);
    points.push_back(std::move(point));
  }
  return points;
}

// Names are in a list of their own: they repeat in every step.
json timeline_of(const Timeline& timeline) {
  json names = json::array(), ranks = json::array();
  std::map<std::string, std::size_t> known;
  for (const TimelineRank& rank : timeline) {
    json rows = json::array();
    for (const TimelineRow& row : rank.rows) {
      json spans = json::array();
      for (const TimelineSpan& span : row.spans) {
        const auto [at, added] = known.try_emplace(span.name, known.size());
        if (added) names.push_back(span.name);
        spans.push_back({ms_of(span.began_ms), ms_of(span.lasted_ms), at->second, span.background ? 1 : 0});
      }
      rows.push_back({{"name", row.name}, {"spans", std::move(spans)}});
    }
    ranks.push_back({{"name", rank.name}, {"rows", std::move(rows)}});
  }
  return {{"names", std::move(names)}, {"ranks", std::move(ranks)}};
}

json run_of(const Run& run, const std::vector<Run>& runs) {
  const Run* base = baseline_of(run, runs);
  json one{{"name", run.name},
           {"group", run.group},
           {"strategy", run.strategy},
           {"result", result_text(run)},
           {"metric", run.metric},
           {"steps", run.steps},
           {"speedup", base == nullptr ? json(nullptr) : value_of(run.samples_per_second / base->samples_per_second)},
           {"bytes_sent", value_of(run.bytes_sent_per_step)},
           {"bytes_received", value_of(run.bytes_received_per_step)},
           {"losses", losses_of(run)},
           {"evaluations", json::array()},
           {"changes", json::array()}};
  one["phases"] = {{"compute", ms_of(run.mean.compute_ms)},
                   {"update", ms_of(run.mean.update_ms)},
                   {"encode", ms_of(run.mean.encode_ms)},
                   {"waiting", ms_of(run.mean.waiting_ms)}};
  for (const EvaluationPoint& point : run.evaluations) {
    json made = moment_of(point);
    made["y"] = value_of(point.value);
    one["evaluations"].push_back(std::move(made));
  }
  for (const GroupChange& change : run.changes) {
    json made = moment_of(change);
    made.update({{"lost", change.lost},
                 {"joined", change.joined},
                 {"workers", change.workers},
                 {"recovery_ms", ms_of(change.recovery_ms)},
                 {"why", change.why}});
    one["changes"].push_back(std::move(made));
  }
  if (!run.timeline.empty()) one["timeline"] = timeline_of(run.timeline);
  return one;
}

}  // namespace

namespace {

json all_of(const std::vector<Run>& runs) {
  json all{{"runs", json::array()}};
  for (const Run& run : runs) all["runs"].push_back(run_of(run, runs));
  return all;
}

std::string text_of(const json& all) { return all.dump(-1, ' ', true, json::error_handler_t::replace); }

}  // namespace

std::string page_data(const std::vector<Run>& runs) { return text_of(all_of(runs)); }

std::string live_page_data(const Run& run, const std::map<std::string, std::string>& tables) {
  json all = all_of({run});
  all["live"] = true;
  all["tables"] = tables;
  return text_of(all);
}

}  // namespace slipstream
