// SPDX-License-Identifier: Apache-2.0
#include "strategy/dasgd.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cmath>

#include "base/vec.h"
#include "fabric/metered_fabric.h"
#include "strategy/synchronous_step.h"
#include "topology/average.h"

namespace slipstream {

DaSgd::DaSgd(const Options& options) : options_(options), warmup_{options.warmup_steps}, rule_(options.rule()) {
  const DelayRule::Choice first = rule_.choose(0);
  when_ = {first.period, first.delay};
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
  const auto momentum = s.opt.momentum();
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
  meter_.emplace(s.net);
  alone_ = s.net.size() == 1 && rule_.measures();
}

void DaSgd::on_step(Step& s) {
  if (warmup_.active(s.t)) {
    synchronous_step(s);  // (1)
    if (shared_ && !warmup_.active(s.t + 1)) shared_->reset(s.model.weights());
    return;
  }
  s.opt.step(s.model.weights(), s.model.grads(), 1.0F, s.net.size());  // (2)
  if (alone_) return;
  if (pending_) meter_->stepped(arrived());
  const std::int64_t t = s.t - warmup_.steps;
  if (pending_ && when_.applies(t)) merge(s);  // (3)
  if (when_.sends(t)) send(s);                 // (4)
  if (pending_ && when_.delay == 0) merge(s);
}

void DaSgd::send(Step& s) {
  if (shared_) {
    shared_->start(s);
  } else {
    const auto state = options_.state == "average" ? s.opt.momentum() : std::span<float>();
    anchor_->snapshot(s.model.weights(), state);
    sum_ = s.net.sum(anchor_->message());
  }
  meter_->began();
  pending_ = true;
}

void DaSgd::merge(Step& s) {
  meter_->waits([this] { shared_ ? shared_->settle() : sum_.wait(); });

  const auto updating = s.opt.timed();
  const auto keep = static_cast<float>(options_.mix);
  if (shared_) {
    shared_->merge(s.model.weights());
  } else if (options_.merge == "additive") {
    anchor_->merge_additive(s.model.weights(), s.net.size());
  } else {
    anchor_->merge_lerp(s.model.weights(), keep, s.net.size());
  }
  if (options_.state == "scale") vec::scale(s.opt.momentum(), keep);
  if (options_.state == "average") anchor_->merge_lerp_others(s.opt.momentum(), keep, s.net.size());
  pending_ = false;
  if (rule_.measures()) choose(s.t - warmup_.steps);
}

// All ranks choose alike, from a figure they agreed on, at a step that all merge in.
void DaSgd::choose(std::int64_t t) {
  const float steps = meter_->agree();
  if (steps == 0) return;
  const DelayRule::Choice now = rule_.choose(steps);
  when_ = when_.changed(t - when_.delay, now.period, now.delay);
  const std::array<std::int64_t, 3> tell = {now.period, now.delay, std::min(now.needed, now.delay + 1)};
  if (std::exchange(told_, tell) == tell) return;
  news_ = fmt::format("delay {} of period {}: an average takes {:.1f} steps", now.delay, now.period, steps);
  if (now.needed > now.delay) {
    news_ += fmt::format(", so that steps wait for it; period={} or period=auto would hide it", now.needed);
  }
}

// A last average makes all ranks equal. An average that is still under way is older than the weights, so it is not
// merged any more. Ranks that agree already are left as they are, bit for bit.
void DaSgd::on_finish(Step& s) {
  shared_ ? shared_->settle() : sum_.wait();
  meter_->settle();
  const std::int64_t last = s.t - 1;
  const bool replaced = when_.delay == 0 && when_.sends(last - warmup_.steps) && anchor_ &&
                        (options_.merge == "additive" || options_.mix == 0);
  if (s.t == 0 || alone_ || warmup_.active(last) || replaced) return;
  average(s.net, s.model.weights());
}

void DaSgd::visit(StateVisitor& v) {
  if (anchor_) sum_.wait();
  if (anchor_) anchor_->visit(v);
  if (shared_) shared_->visit(v);
  if (rule_.measures()) meter_->visit(v);
  std::int64_t pending = pending_ ? 1 : 0;
  v.integer("pending", pending);
  pending_ = pending != 0;
  v.integer("period", when_.period);
  v.integer("delay", when_.delay);
  v.integer("offset", when_.offset);
}

double DaSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const DelayRule::Choice choice = options.rule().choose(0);
  const Delayed when{choice.period, choice.delay};
  const std::int64_t t = q.t - options.warmup_steps;
  const double model = MeteredFabric::sum_bytes(q.model.count(), q.workers);
  if (Warmup{options.warmup_steps}.active(q.t)) return model;
  if (options.codec == "dense") return when.sends(t) ? model * (options.state == "average" ? 2 : 1) : 0;
  const CompressedSumOptions codec{options.codec, options.density};
  return (when.sends(t) ? codec.start_bytes(q.model.count(), q.workers) : 0) +
         (when.applies(t) ? codec.finish_bytes(q.model.count(), q.workers) : 0);
}

void DaSgdOptions::describe(OptionSet& o) {
  constexpr Range<std::int64_t> kPeriods{1, 1'000'000};
  if (whole_period) {
    o.integer("period", *period, kPeriods, kChangesResult, "steps between two averages, and until one is merged");
  } else {
    o.integer_or_auto("period", period, kPeriods, kChangesResult,
                      "steps between two averages (tau); auto: twice the delay, at least 4");
    o.integer_or_auto(
        "delay", delay, {0, 1'000'000}, kChangesResult,
        "steps until an average is merged (del), at most period; auto: the fewest that hide it, measured");
    o.choice("merge", merge, {"lerp", "additive"}, kChangesResult,
             "lerp: w = mix w + (1 - mix) average, as published; additive: average + the steps since the snapshot");
    o.real("mix", mix, {0, 1}, kChangesResult,
           "share of its own that a worker keeps (xi): of the weights in merge=lerp, of the state in state=scale, "
           "average");
    o.choice("state", state, {"keep", "scale", "average"}, kChangesResult,
             "velocity (adam: first moment) at a merge: left alone, times mix, or averaged with the weights");
    o.choice("codec", codec, {"dense", "half", "topk", "sketch"}, kChangesResult,
             "how the weights travel: whole, or as differences to a shared anchor with error feedback");
    o.real("density", density, {1e-6, 1.0}, kChangesResult, "share of the entries that codec=topk or sketch sends");
  }
  o.integer("warmup_steps", warmup_steps, {0, 1'000'000'000}, kChangesResult, "synchronous steps at the start");
}

}  // namespace slipstream
