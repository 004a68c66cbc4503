// SPDX-License-Identifier: Apache-2.0
#include "watch/live_run.h"

#include <cmath>
#include <sstream>

#include "watch/trace.h"

namespace slipstream {
namespace {

constexpr double kLookSeconds = 10;  // how long after a request somebody is assumed to look

double mean_of_finite(double a, double b) {
  if (!std::isfinite(a)) return b;
  return std::isfinite(b) ? (a + b) / 2 : a;
}

template <typename Line>
void keep_latest(std::vector<Line>& lines) {
  if (lines.size() > LiveRun::kMostLines) lines.erase(lines.begin());
}

}  // namespace

LiveRun::LiveRun(Run about) : run_(std::move(about)) {}

void LiveRun::step(const StepRecord& record, const Traffic& traffic, double samples) {
  const std::lock_guard lock(mutex_);
  statistics_.add(record);
  last_ = record;
  last_.news = {};
  now_.step = record.t + 1;
  now_.seconds += record.seconds;
  now_.samples += samples;
  run_.samples_per_second = samples;  // per step; run() divides by the time
  add_loss(record.loss);
  if (!record.news.empty()) {
    run_.news.push_back({{record.t, now_.seconds, now_.samples}, record.news});
    keep_latest(run_.news);
  }
  trace(record, traffic);
}

// Every point is the mean of equally many steps; when there are too many points, pairs are merged.
void LiveRun::add_loss(double loss) {
  if (gathered_ == 0) run_.losses.push_back({});
  ++gathered_;
  if (std::isfinite(loss)) {
    loss_sum_ += loss;
    ++finite_;
  }
  const double mean = finite_ > 0 ? loss_sum_ / static_cast<double>(finite_) : std::nan("");
  run_.losses.back() = {{now_.step - 1, now_.seconds, now_.samples}, mean};
  if (gathered_ < stride_) return;
  gathered_ = finite_ = 0;
  loss_sum_ = 0;
  auto& points = run_.losses;
  if (points.size() < kMostPoints) return;
  for (std::size_t i = 0; 2 * i + 1 < points.size(); ++i) {
    const double both = mean_of_finite(points[2 * i].loss, points[2 * i + 1].loss);
    points[i] = points[2 * i + 1];
    points[i].loss = both;
  }
  points.resize(points.size() / 2);
  stride_ *= 2;
}

void LiveRun::trace(const StepRecord& record, const Traffic& traffic) {
  if (clock_.now() > watched_until_) return traced_.clear();
  Traced& kept = traced_.emplace_back(Traced{record, traffic});
  for (WorkRecord& work : kept.traffic.work) {
    auto name = names_.find(work.bucket);
    if (name == names_.end()) name = names_.emplace(work.bucket).first;
    work.bucket = *name;
  }
  if (traced_.size() > kTracedSteps) traced_.pop_front();
}

void LiveRun::evaluated(std::int64_t steps, const std::string& metric, double value) {
  const std::lock_guard lock(mutex_);
  run_.metric = metric;
  run_.metric_value = value;
  metric_steps_ = steps;
  auto& points = run_.evaluations;
  if (!points.empty() && points.back().step == steps) points.pop_back();
  points.push_back({{steps, now_.seconds, now_.samples}, value});
  if (points.size() < kMostPoints) return;
  for (std::size_t i = 0; 2 * i + 1 < points.size(); ++i) points[i] = points[2 * i + 1];
  points.resize(points.size() / 2);
}

void LiveRun::regrouped(const GroupChange& change) {
  const std::lock_guard lock(mutex_);
  now_.seconds += 1e-3 * change.recovery_ms;
  group_ = change.group;
  if (change.lost > 0) ++recoveries_;
  run_.workers = change.workers;
  GroupChange made = change;
  made.seconds = now_.seconds;
  made.samples = now_.samples;
  run_.changes.push_back(made);
  keep_latest(run_.changes);
  traced_.clear();
}

Run LiveRun::run() {
  Run made;
  std::deque<Traced> traced;
  {
    const std::lock_guard lock(mutex_);
    watched_until_ = clock_.now() + kLookSeconds;
    made = run_;
    traced = traced_;
    made.steps = statistics_.steps();
    made.wall_seconds = now_.seconds;
    made.step_ms_median = statistics_.median_ms(&StepRecord::seconds);
    made.samples_per_second *= 1e3 / statistics_.mean_ms(&StepRecord::seconds);
    made.efficiency = statistics_.efficiency();
    made.hidden_fraction = statistics_.hidden_fraction();
    made.bytes_sent_per_step = statistics_.mean(&StepRecord::bytes_sent);
    made.bytes_received_per_step = statistics_.mean(&StepRecord::bytes_received);
    made.final_loss = made.steps > 0 ? last_.loss : std::nan("");
    made.mean = {statistics_.mean_ms(&StepRecord::compute_seconds), statistics_.mean_ms(&StepRecord::update_seconds),
                 statistics_.mean_ms(&StepRecord::encode_seconds), statistics_.mean_ms(&StepRecord::exposed_seconds)};
  }
  if (traced.empty()) return made;
  Trace trace(0, 0, traced.back().record.t + 1);
  for (const Traced& one : traced) trace.add(one.record, one.traffic);
  std::istringstream document(Trace::document({trace.events()}));
  made.timeline = read_timeline(document, "the live trace", kTracedSteps);
  return made;
}

LiveRun::Figures LiveRun::figures() const {
  const std::lock_guard lock(mutex_);
  Figures made{.name = run_.name, .strategy = run_.strategy, .task = run_.task, .model = run_.model, .last = last_};
  const auto steps = static_cast<double>(statistics_.steps());
  for (const auto field :
       {&StepRecord::seconds, &StepRecord::compute_seconds, &StepRecord::update_seconds, &StepRecord::encode_seconds,
        &StepRecord::exposed_seconds, &StepRecord::bytes_sent, &StepRecord::bytes_received}) {
    made.sum.*field = statistics_.mean(field) * steps;
  }
  made.hidden_fraction = statistics_.hidden_fraction();
  made.efficiency = statistics_.efficiency();
  made.steps = now_.step;
  made.workers = run_.workers;
  made.group = group_;
  made.recoveries = recoveries_;
  made.metric = run_.metric;
  made.metric_value = run_.metric_value;
  made.metric_steps = metric_steps_;
  return made;
}

}  // namespace slipstream
