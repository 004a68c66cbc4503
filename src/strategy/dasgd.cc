// SPDX-License-Identifier: Apache-2.0
#include "strategy/dasgd.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cmath>

#include "base/vec.h"
#include "fabric/metered_fabric.h"
#include "optim/momentum.h"
#include "strategy/synchronous_step.h"
#include "topology/average.h"

namespace slipstream {

DaSgd::DaSgd(const Options& options)
    : options_(options), warmup_{options.warmup_steps}, when_{options.period, options.delay.value_or(options.period)} {
  if (when_.delay > when_.period) {
    fail<ConfigError>("delay={} is longer than period={}: two averages would be under way; use delay <= period",
                      when_.delay, when_.period);
  }
  if (options.codec != "dense" && options.merge != "additive") {
    fail<ConfigError>("codec={} sends differences to a shared anchor, which only merge=additive can merge",
                      options.codec);
  }
  if (options.codec != "dense" && options.state == "average") {
    fail<ConfigError>(
        "state=average sends the optimizer's state whole, which codec={} is there to avoid; use "
        "state=keep, or codec=dense",
        options.codec);
  }
}

void DaSgd::on_start(Step& s) {
  const auto momentum = momentum_of(s.opt);
  if (options_.state != "keep" && momentum.empty() && s.model.count() > 0) {
    fail<ConfigError>("state={} needs an optimizer with a state: optimizer=sgd with momentum, adam or adamw",
                      options_.state);
  }
  if (options_.codec == "dense") {
    anchor_.emplace(s.model.count(), options_.state == "average" ? momentum.size() : 0, options_.merge == "additive");
  } else {
    shared_.emplace(CompressedSumOptions{options_.codec, options_.density}, s.model.count());
    shared_->reset(s.model.weights());
  }
  if (!options_.delay) meter_.emplace(s.net.size());
}

void DaSgd::on_step(Step& s) {
  if (warmup_.active(s.t)) {
    synchronous_step(s);  // (1)
    if (shared_ && !warmup_.active(s.t + 1)) shared_->reset(s.model.weights());
    return;
  }
  s.opt.step(s.model.weights(), s.model.grads());  // (2)
  if (pending_ && meter_) meter_->stepped(shared_ ? shared_->done() : sum_.done());
  const std::int64_t t = s.t - warmup_.steps;
  if (pending_ && when_.applies(t)) merge(s);  // (3)
  if (when_.sends(t)) send(s);                 // (4)
  if (pending_ && when_.delay == 0) merge(s);
}

void DaSgd::send(Step& s) {
  if (shared_) {
    shared_->start(s);
  } else {
    const auto state = options_.state == "average" ? momentum_of(s.opt) : std::span<float>();
    anchor_->snapshot(s.model.weights(), state);
    sum_ = s.net.sum(anchor_->message());
  }
  if (meter_) meter_->began(s.net.clock().now());
  pending_ = true;
}

void DaSgd::merge(Step& s) {
  const double asked = s.net.clock().now();
  shared_ ? shared_->settle() : sum_.wait();
  if (meter_) meter_->waited(asked, s.net.clock().now());

  const auto keep = static_cast<float>(options_.mix);
  if (shared_) {
    shared_->merge(s.model.weights());
  } else if (options_.merge == "additive") {
    anchor_->merge_additive(s.model.weights(), s.net.size());
  } else {
    anchor_->merge_lerp(s.model.weights(), keep, s.net.size());
  }
  if (options_.state == "scale") vec::scale(momentum_of(s.opt), keep);
  if (options_.state == "average") anchor_->merge_lerp_others(momentum_of(s.opt), keep, s.net.size());
  pending_ = false;
  if (meter_) choose_delay(s);
}

// The shortest delay that hides an average: all ranks choose the same, from figures they agreed on.
void DaSgd::choose_delay(Step& s) {
  constexpr float kNoise = 0.05F;  // of a step: what is late by less is not worth a step of staleness
  const float steps = meter_->agree(s.net);
  if (steps == 0) return;
  const auto needed = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(steps - kNoise)));
  when_.delay = std::min(needed, when_.period);
  const std::int64_t worth_telling = std::min(needed, when_.period + 1);
  if (std::exchange(told_, worth_telling) == worth_telling) return;
  news_ = fmt::format("delay {} of period {}: an average takes {:.1f} steps", when_.delay, when_.period, steps);
  if (needed > when_.period) news_ += fmt::format(", so that steps wait for it; period={} would hide it", needed);
}

// A last average makes all ranks equal. An average that is still under way is older than the weights, so it is not
// merged any more. Ranks that agree already are left as they are, bit for bit.
void DaSgd::on_finish(Step& s) {
  shared_ ? shared_->settle() : sum_.wait();
  if (meter_) meter_->settle();
  const std::int64_t last = s.t - 1;
  const bool replaced = when_.delay == 0 && when_.sends(last - warmup_.steps) && anchor_ &&
                        (options_.merge == "additive" || options_.mix == 0);
  if (s.t == 0 || warmup_.active(last) || replaced) return;
  average(s.net, s.model.weights());
}

void DaSgd::visit(StateVisitor& v) {
  if (anchor_) sum_.wait();
  if (anchor_) anchor_->visit(v);
  if (shared_) shared_->visit(v);
  if (meter_) meter_->visit(v);
  std::int64_t pending = pending_ ? 1 : 0;
  v.integer("pending", pending);
  pending_ = pending != 0;
  v.integer("delay", when_.delay);
}

double DaSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const Delayed when{options.period, options.delay.value_or(options.period)};
  const std::int64_t t = q.t - options.warmup_steps;
  const double model = MeteredFabric::sum_bytes(q.model.count(), q.workers);
  if (Warmup{options.warmup_steps}.active(q.t)) return model;
  if (options.codec == "dense") return when.sends(t) ? model * (options.state == "average" ? 2 : 1) : 0;
  const CompressedSumOptions codec{options.codec, options.density};
  return (when.sends(t) ? codec.start_bytes(q.model.count(), q.workers) : 0) +
         (when.applies(t) ? codec.finish_bytes(q.model.count(), q.workers) : 0);
}

void DaSgdOptions::describe(OptionSet& o) {
  o.integer("period", period, {1, 1'000'000}, kChangesResult, "steps between two averages (tau)");
  o.integer_or_auto("delay", delay, {0, 1'000'000}, kChangesResult,
                    "steps until an average is merged (del), at most period; auto: as many as it takes, measured");
  o.choice("merge", merge, {"lerp", "additive"}, kChangesResult,
           "lerp: w = mix w + (1 - mix) average, as published; additive: average + the steps since the snapshot");
  o.real(
      "mix", mix, {0, 1}, kChangesResult,
      "share of its own that a worker keeps (xi): of the weights in merge=lerp, of the state in state=scale, average");
  o.choice("state", state, {"keep", "scale", "average"}, kChangesResult,
           "velocity (adam: first moment) at a merge: left alone, times mix, or averaged with the weights");
  o.choice("codec", codec, {"dense", "half", "topk", "sketch"}, kChangesResult,
           "how the weights travel: whole, or as differences to a shared anchor with error feedback");
  o.real("density", density, {1e-6, 1.0}, kChangesResult, "share of the entries that codec=topk or sketch sends");
  o.integer("warmup_steps", warmup_steps, {0, 1'000'000'000}, kChangesResult, "synchronous steps at the start");
}

void CocodOptions::describe(OptionSet& o) {
  o.integer("period", period, {1, 1'000'000}, kChangesResult, "steps between two averages, and until one is merged");
  o.integer("warmup_steps", warmup_steps, {0, 1'000'000'000}, kChangesResult, "synchronous steps at the start");
}

}  // namespace slipstream
