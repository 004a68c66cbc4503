// SPDX-License-Identifier: Apache-2.0
#include "runtime/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <vector>

namespace slipstream {
namespace {

// Markdown shows indented lines as they are.
std::string indented(const std::string& lines) {
  std::string made;
  std::istringstream rest(lines);
  for (std::string line; std::getline(rest, line);) made += "    " + line + "\n";
  return made;
}

}  // namespace

Watch::Watch(const TrainConfig& config, const Summary& about) : config_(config) {
  if (config.dashboard.empty()) return;
  Run run;
  run.path = config.out;
  run.name = config.out.empty() ? "this run" : run_name(config.out);
  run.strategy = about.strategy;
  run.options = about.options;
  run.task = about.task;
  run.model = about.model;
  run.optimizer = about.optimizer;
  run.network = config.launch.lab;
  run.date = about.date;
  run.host = about.host;
  run.parameters = about.parameters;
  run.workers = about.workers;
  run.servers = about.servers;
  run.batch = about.batch;
  run.seed = about.seed;
  run.lr = about.lr;
  live_.emplace(std::move(run));
}

void Watch::serve() {
  if (!live_ || dashboard_) return;
  dashboard_.emplace(config_.dashboard, *live_, !config_.launch.lab.empty() && config_.launch.supervised());
  std::fprintf(stderr, "dashboard: %s\n", dashboard_->url().c_str());
}

void Watch::step(const StepRecord& record, const Traffic& traffic, double samples, bool rank_0,
                 const std::function<std::string()>& resolved) {
  if (live_) live_->step(record, traffic, samples);
  if (config_.tensorboard && rank_0) write_events(record, resolved);
}

void Watch::write_events(const StepRecord& r, const std::function<std::string()>& resolved) {
  if (!events_) {
    events_.emplace(config_.out + "/tensorboard", r.t);
    events_->text(r.t, "configuration", indented(resolved()));
  }
  std::vector<EventFile::Scalar> values{{"train/loss", r.loss},
                                        {"train/lr", r.lr},
                                        {"step_ms/step", 1e3 * r.seconds},
                                        {"step_ms/compute", 1e3 * r.compute_seconds},
                                        {"step_ms/update", 1e3 * r.update_seconds},
                                        {"step_ms/encode", 1e3 * r.encode_seconds},
                                        {"step_ms/exposed", 1e3 * r.exposed_seconds},
                                        {"network/bytes_sent", r.bytes_sent},
                                        {"network/bytes_received", r.bytes_received}};
  if (r.wire_seconds > 0) {
    values.emplace_back("network/hidden", std::clamp(1 - r.exposed_seconds / r.wire_seconds, 0.0, 1.0));
  }
  events_->scalars(r.t, values);
}

void Watch::evaluated(std::int64_t steps, const std::string& metric, double value, bool rank_0) {
  if (live_) live_->evaluated(steps, metric, value);
  if (!events_ || !rank_0) return;
  const std::string tag = "evaluation/" + metric;
  const EventFile::Scalar scalar{tag, value};
  events_->scalars(steps, std::span(&scalar, 1));
}

void Watch::regrouped(const Ledger::Change& change) {
  if (!live_) return;
  GroupChange told;
  told.step = change.step;
  told.group = change.group;
  told.workers = change.workers;
  told.lost = change.lost;
  told.joined = change.joined;
  told.recovery_ms = 1e3 * change.seconds;
  told.why = change.why;
  live_->regrouped(told);
}

}  // namespace slipstream
