// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_predict.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/hash.h"
#include "strategy/lags_statistics.h"

namespace slipstream {
namespace {

constexpr double kFloats = 1 << 21;  // of all workers' stand-ins together
constexpr double kFewestFloats = 1 << 14, kMostFloats = 1 << 18;
constexpr double kWholeFloats = 1 << 25;      // the same for strategies that need the whole model
constexpr const char* kByShape = "powersgd";  // the only one of them
constexpr const char* kWithStatistics = "lags";
constexpr int kMeasuredWorkers = 8;          // with more workers, costs are extrapolated …
constexpr int kFewerWorkers = 4;             // … from these two
constexpr std::int64_t kSettle = 24;         // steps until strategies have made their first measurements
constexpr std::int64_t kSettleAverages = 5;  // averages until a delay has adapted to the wire (strategy/delay_meter.h)
constexpr std::int64_t kWindow = 16;         // least number of steps to average over
constexpr std::int64_t kLongPeriod = 64;
constexpr std::int64_t kLongestWindow = 4096;
constexpr double kMostSteps = 600'000;  // limit of the simulated steps of all workers together
constexpr double kSteady = 0.02;
constexpr std::int64_t kLongCosts = 64;  // half of the steps in which costs are measured, at most

std::size_t floats_for(int workers) {
  return static_cast<std::size_t>(std::clamp(kFloats / workers, kFewestFloats, kMostFloats));
}

std::size_t whole_model(int workers) { return static_cast<std::size_t>(kWholeFloats / workers); }

std::int64_t integer_option(const OptionSet& options, std::string_view name, std::int64_t otherwise) {
  for (const Option& option : options.all()) {
    if (option.name != name) continue;
    const std::string text = option.get();
    std::int64_t value = otherwise;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }
  return otherwise;
}

struct Length {
  std::int64_t warmup, window;
  bool period_known;  // false: the strategy chooses when to send
};

// Steps after which what a strategy does repeats: its period, or how often it measures. What is rarer still hardly
// counts in a step.
std::int64_t cycle_of(const std::string& name, const OptionSet& options, std::int64_t period) {
  const std::int64_t looks =
      name == kWithStatistics ? LagsStatistics::kEvery : integer_option(options, "resplit_every", 1);
  return looks <= kLongPeriod ? std::max(period, looks) : period;
}

// The number of warm-up steps, and a whole number of cycles.
Length length_of(const std::string& name, const OptionSet& options) {
  const std::int64_t period = std::clamp<std::int64_t>(integer_option(options, "period", 1), 1, kLongestWindow);
  const std::int64_t synchronous = integer_option(options, "warmup_steps", 5 * period);  // auto: five periods
  const bool warms_up =
      std::any_of(options.all().begin(), options.all().end(), [](const Option& o) { return o.name == "warmup_steps"; });
  const std::int64_t settle = std::max(kSettle, kSettleAverages * std::min(period, kLongPeriod));
  const std::int64_t warmup =
      std::max(warms_up ? synchronous : 0, integer_option(options, "density_warmup", 0)) + settle;
  const std::int64_t cycle = cycle_of(name, options, period);
  const std::int64_t whole = (std::max(kWindow, cycle) + cycle - 1) / cycle * cycle;
  return {std::min(warmup, kLongestWindow), whole, integer_option(options, "period", 0) > 0};
}

// Scales options that count elements or bytes of the model down to the stand-in.
void shrink_sizes(StrategyInfo::Configured& configured, double scale) {
  constexpr std::int64_t kBlock = 16;  // columns of a table must be a multiple of this
  for (const char* name : {"merge_elements", "block_bytes", "dense_below", "columns"}) {
    const std::int64_t value = integer_option(configured.options, name, -1);  // -1: no such option, or it is auto
    if (value <= 0 || scale <= 1) continue;
    auto fewer = std::max<std::int64_t>(4, std::llround(static_cast<double>(value) / scale));
    if (name == std::string_view("columns")) fewer = (fewer + kBlock - 1) / kBlock * kBlock;
    configured.options.set(name, std::to_string(fewer));
  }
}

struct Window {
  double step_s = 0, exposed_s = 0, encode_s = 0, wire_s = 0, sent = 0, busiest = 0;
};

// Means over ranks and the steps [first, first + count).
Window mean_of(const SimJobResult& result, std::int64_t first, std::int64_t count) {
  Window mean;
  const auto ranks = static_cast<double>(result.ranks.size());
  for (const SimRankResult& rank : result.ranks) {
    double sent = 0, received = 0;
    for (std::int64_t i = first; i < first + count; ++i) {
      const SimStepRecord& step = rank.steps[static_cast<std::size_t>(i)];
      const double share = 1 / (ranks * static_cast<double>(count));
      mean.step_s += step.seconds * share;
      mean.exposed_s += step.exposed_seconds * share;
      mean.encode_s += step.encode_seconds * share;
      mean.wire_s += step.wire_seconds * share;
      sent += step.bytes_sent / static_cast<double>(count);
      received += step.bytes_received / static_cast<double>(count);
    }
    mean.sent += sent / ranks;
    mean.busiest = std::max({mean.busiest, sent, received});
  }
  return mean;
}

struct Span {
  std::int64_t first, count;
};

// The steps to average over where workers differ between averages: in the second half, those after the first step that
// sends up to the last one that sends, or the last ones, if all send. None if fewer than two send. Messages by which
// workers agree on a period are no sending: they have less than a hundredth of what an average has.
Span whole_periods(const SimJobResult& result, const Length& length) {
  const auto& steps = result.ranks.front().steps;
  const auto all = static_cast<std::int64_t>(steps.size());
  const auto moved = [](const SimStepRecord& step) { return step.bytes_sent + step.bytes_received; };
  double most = 0;
  for (const SimStepRecord& step : steps) most = std::max(most, moved(step));
  std::vector<std::int64_t> sending;
  for (std::int64_t t = all / 2; t < all; ++t) {
    if (moved(steps[static_cast<std::size_t>(t)]) > most / 100) sending.push_back(t);
  }
  if (static_cast<std::int64_t>(sending.size()) == all - all / 2) {
    return {all - length.window, length.window};
  }
  if (sending.size() < 2) return {0, 0};
  return {sending.front() + 1, sending.back() - sending.front()};
}

void require_finished(const SimJobResult& result, const Contender& contender) {
  for (const SimRankResult& rank : result.ranks) {
    check(rank.outcome.finished(), "the simulation of {} ended early: {}", contender.text(), rank.outcome.error);
  }
}

// Extrapolates linearly from the costs with fewer and with more workers; never below the latter.
double extrapolated(double fewer, double more, int workers) {
  const double slope = std::max(0.0, (more - fewer) / (kMeasuredWorkers - kFewerWorkers));
  return more + slope * (workers - kMeasuredWorkers);
}

}  // namespace

Predictor::Predictor(PlanProfile profile, const Registry& registry)
    : profile_(std::move(profile)), registry_(registry) {}

SimJobOptions Predictor::job(const Contender& contender, int workers, std::int64_t steps) const {
  auto configured = registry_.configure(contender.name, contender.set);
  shrink_sizes(configured, model_->scale());
  SimJobOptions job;
  job.world.ranks = workers;
  job.world.link = profile_.link;
  job.world.bytes_scale = model_->scale();
  job.world.timeout_s = 1e9;
  job.task = model_;
  job.make_strategy = [configured] { return configured.make(); };
  job.optimizer = profile_.optimizer;
  job.steps = steps;
  job.compute_seconds = profile_.compute_s;
  job.step_factors = profile_.compute_factors;
  job.forward_share = profile_.forward_share;
  job.backward_shares = profile_.backward_shares;
  job.io_s_per_byte = profile_.io_s_per_byte;
  if (profile_.costs) job.cpu_clock = profile_.cpu_factor * model_->scale();
  return job;
}

Predictor::Costs Predictor::measured_costs(const Contender& contender, int workers, std::int64_t steps) const {
  SimJobOptions options = job(contender, workers, steps);
  options.measure_costs = true;
  Costs found;
  std::map<std::int64_t, std::uint64_t> hashes;  // by step, of the first rank to get there
  options.on_step_end = [&](int, std::int64_t t, std::span<const float> weights) {
    const std::uint64_t hash = hash_bytes(std::as_bytes(weights));
    found.equal = found.equal && hashes.emplace(t, hash).first->second == hash;
  };
  const SimJobResult result = run_sim_job(options);
  require_finished(result, contender);
  const SimRankResult& first = result.ranks.front();
  found.hooks.bucket_s.resize(first.costs.bucket_s.size());
  for (const SimRankResult& rank : result.ranks) {
    found.hooks.step_s += rank.costs.step_s / workers;
    for (std::size_t b = 0; b < found.hooks.bucket_s.size(); ++b) {
      found.hooks.bucket_s[b] += rank.costs.bucket_s[b] / workers;
    }
  }
  double handling_s = 0, handled_bytes = 0, moved_bytes = 0;
  for (const SimServerResult& server : result.servers) {
    handling_s += server.handling_s;
    handled_bytes += server.bytes_handled;
    moved_bytes += server.bytes_sent + server.bytes_received;
  }
  if (handled_bytes > 0) found.hooks.server_s_per_byte = handling_s / handled_bytes;
  if (moved_bytes > 0) found.server_s_per_moved_byte = handling_s / moved_bytes;
  const auto count = static_cast<double>(std::max<std::size_t>(1, FlatModel(model_->parameters()).count()));
  found.copies = 2 + static_cast<double>(first.state_floats) / count;
  return found;
}

Predictor::Costs Predictor::costs(const Contender& contender, std::int64_t steps) const {
  if (profile_.workers <= kMeasuredWorkers) return measured_costs(contender, profile_.workers, steps);
  const Costs fewer = measured_costs(contender, kFewerWorkers, steps);
  Costs all = measured_costs(contender, kMeasuredWorkers, steps);
  all.hooks.step_s = extrapolated(fewer.hooks.step_s, all.hooks.step_s, profile_.workers);
  for (std::size_t b = 0; b < all.hooks.bucket_s.size(); ++b) {
    all.hooks.bucket_s[b] = extrapolated(fewer.hooks.bucket_s[b], all.hooks.bucket_s[b], profile_.workers);
  }
  return all;
}

// What counts as time: hooks beyond those of a dense step, scaled to the whole model, and the update.
HookCosts Predictor::charged(const Contender& contender, Costs& of, std::int64_t steps) {
  of = costs(contender, steps);
  HookCosts hooks = of.hooks;
  const double here = profile_.costs ? profile_.cpu_factor * model_->scale() : 0;
  if (dense_update_s_ < 0) dense_update_s_ = here * costs({"ssgd", {}}, steps).hooks.step_s;
  hooks.step_s = std::max(0.0, profile_.update_s + here * hooks.step_s - dense_update_s_);
  for (double& seconds : hooks.bucket_s) seconds *= here;
  hooks.server_s_per_byte *= here;
  return hooks;
}

Prediction Predictor::simulate(const Contender& contender) {
  const Length length = length_of(contender.name, registry_.configure(contender.name, contender.set).options);
  Costs found;
  const HookCosts hooks = charged(contender, found, 2 * std::min(length.warmup + length.window, kLongCosts));
  Window last;
  Span over{};
  SimJobResult result;
  for (std::int64_t settle = length.warmup;; settle = 2 * settle + length.window) {
    const std::int64_t steps = settle + (length.window > kLongPeriod ? 1 : 2) * length.window;
    SimJobOptions options = job(contender, profile_.workers, steps);
    options.charged = hooks;
    if (profile_.costs && profile_.shared_cores) {
      options.io_s_per_byte += profile_.cpu_factor * found.server_s_per_moved_byte;
    }
    result = run_sim_job(options);
    require_finished(result, contender);
    const bool longest = 2.0 * static_cast<double>(steps) * profile_.workers > kMostSteps;
    const bool known = length.period_known || found.equal;  // equal workers send in every step
    const auto span = known ? Span{steps - length.window, length.window} : whole_periods(result, length);
    if (span.count == 0 && longest) {
      fail<ConfigError>("in {} simulated steps it did not average twice: give it a period", steps);
    }
    if (span.count == 0) continue;
    last = mean_of(result, span.first, span.count);
    over = span;
    if (longest || length.window > kLongPeriod || span.count != length.window) break;
    const Window before = mean_of(result, span.first - span.count, span.count);
    if (std::abs(before.step_s - last.step_s) <= kSteady * last.step_s || settle > 8 * length.warmup) break;
  }
  Prediction p{.contender = contender, .step_s = last.step_s};
  p.encode_s = std::max(0.0, last.encode_s - std::min(profile_.update_s, hooks.step_s));
  p.exposed_s = last.exposed_s;
  p.hidden = last.wire_s > 0 ? std::max(0.0, 1 - last.exposed_s / last.wire_s) : 1;
  p.efficiency = last.step_s > 0 ? profile_.worker_alone_s() / last.step_s : 1;
  p.bytes_sent = last.sent * model_->scale();
  p.bytes_busiest = last.busiest * model_->scale();
  p.copies = found.copies;
  p.equal = found.equal;
  p.first_step = over.first;
  p.steps = over.count;
  for (const SimStepRecord& step : result.ranks[0].steps) {
    if (!step.news.empty()) p.news = step.news;
  }
  return p;
}

Prediction Predictor::predict(const Contender& contender) {
  registry_.configure(contender.name, contender.set);  // unknown names and values are the user's errors
  const bool by_shape = contender.name == kByShape;
  model_ = std::make_shared<StandIn>(profile_.parameters,
                                     by_shape ? whole_model(profile_.workers) : floats_for(profile_.workers));
  Prediction refused{.contender = contender};
  if (by_shape && model_->scale() > 1) {
    refused.refused = "its bytes follow the shapes of matrices, which a stand-in for a large model does not have";
    return refused;
  }
  try {
    return simulate(contender);
  } catch (const ConfigError& e) {
    refused.refused = e.what();
    return refused;
  }
}

}  // namespace slipstream
