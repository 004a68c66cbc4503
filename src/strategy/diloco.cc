// SPDX-License-Identifier: Apache-2.0
#include "strategy/diloco.h"

#include <slipstream/base/error.h>

#include <string>

#include "base/vec.h"
#include "fabric/metered_fabric.h"
#include "topology/average.h"

namespace slipstream {

StreamingDiloco::StreamingDiloco(const Options& options) : options_(options) {
  if (options.delay > options.period) {
    fail<ConfigError>(
        "delay={} is longer than period={}: a fragment would be sent again before it was merged; use "
        "delay <= period",
        options.delay, options.period);
  }
}

std::vector<StreamingDiloco::Fragment> StreamingDiloco::cut(const Options& options, std::size_t count) {
  const auto parts = static_cast<std::size_t>(options.fragments);
  std::vector<Fragment> fragments(parts);
  for (std::size_t f = 0; f < parts; ++f) {
    const std::size_t begin = f * count / parts, end = (f + 1) * count / parts;
    fragments[f].part = {.offset = begin, .count = end - begin};
    fragments[f].when = {options.period, options.delay,
                         static_cast<std::int64_t>(f) * options.period / options.fragments};
  }
  return fragments;
}

void StreamingDiloco::on_start(Step& s) {
  theta_.assign(s.model.weights().begin(), s.model.weights().end());
  velocity_.resize(options_.outer_momentum > 0 ? theta_.size() : 0);
  delta_.resize(theta_.size());
  fragments_ = cut(options_, theta_.size());
}

void StreamingDiloco::on_step(Step& s) {
  s.opt.step(s.model.weights(), s.model.grads());  // (1)
  for (Fragment& f : fragments_) {
    if (f.pending && f.when.applies(s.t)) merge(s, f);
    if (f.when.sends(s.t)) send(s, f);
    if (f.pending && f.when.delay == 0) merge(s, f);
  }
}

void StreamingDiloco::send(Step& s, Fragment& f) {
  const auto part = [&f](std::span<float> all) { return all.subspan(f.part.offset, f.part.count); };
  vec::subtract(part(delta_), part(theta_), s.model.weights(f.part));
  f.sum = s.net.sum(part(delta_));  // (2)
  f.pending = true;
}

void StreamingDiloco::merge(Step& s, Fragment& f) {
  const auto part = [&f](std::span<float> all) { return all.subspan(f.part.offset, f.part.count); };
  const bool momentum = options_.outer_momentum > 0;
  f.sum.wait();
  vec::sgd_step(part(theta_), part(delta_), momentum ? part(velocity_) : std::span<float>(),
                {.lr = static_cast<float>(options_.outer_lr),
                 .momentum = static_cast<float>(options_.outer_momentum),
                 .scale = 1.0F / static_cast<float>(s.net.size()),
                 .nesterov = momentum && options_.nesterov});                          // (3)
  vec::lerp(s.model.weights(f.part), part(theta_), static_cast<float>(options_.mix));  // (4)
  f.pending = false;
}

// A last average makes all ranks equal. What is still under way is older than the weights, so it is not merged any
// more. Ranks that have all just restarted from theta are left as they are, bit for bit.
void StreamingDiloco::on_finish(Step& s) {
  for (Fragment& f : fragments_) f.sum.wait();
  const bool restarted =
      options_.fragments == 1 && options_.delay == 0 && options_.mix == 0 && fragments_[0].when.sends(s.t - 1);
  if (s.t == 0 || restarted) return;
  average(s.net, s.model.weights());
}

void StreamingDiloco::visit(StateVisitor& v) {
  for (Fragment& f : fragments_) f.sum.wait();
  v.floats("theta", theta_);
  v.floats("velocity", velocity_);
  v.floats("delta", delta_);
  for (std::size_t f = 0; f < fragments_.size(); ++f) {
    std::int64_t pending = fragments_[f].pending ? 1 : 0;
    v.integer("pending" + std::to_string(f), pending);
    fragments_[f].pending = pending != 0;
  }
}

double StreamingDiloco::bytes_sent(const Options& options, const TrafficQuery& q) {
  double bytes = 0;
  for (const Fragment& f : cut(options, q.model.count())) {
    if (f.when.sends(q.t)) bytes += MeteredFabric::sum_bytes(f.part.count, q.workers);
  }
  return bytes;
}

namespace {

void describe_period(OptionSet& o, std::int64_t& period) {
  o.integer("period", period, {1, 1'000'000}, kChangesResult, "inner steps between two averages of a fragment (H)");
}

void describe_outer(OptionSet& o, double& lr, double& momentum) {
  o.real("outer_lr", lr, {0, 10}, kChangesResult, "how far the shared point follows the workers (eta)");
  o.real("outer_momentum", momentum, {0, 0.9999}, kChangesResult, "of the outer Nesterov step (mu)");
}

constexpr const char* kMixHelp = "share of its own weights that a worker keeps at a merge (alpha)";

}  // namespace

void StreamingDilocoOptions::describe(OptionSet& o) {
  describe_period(o, period);
  o.integer("fragments", fragments, {1, 10'000}, kChangesResult, "parts of the model, sent one after the other");
  o.integer("delay", delay, {0, 1'000'000}, kChangesResult, "steps until a fragment is merged, at most period");
  o.real("mix", mix, {0, 1}, kChangesResult, kMixHelp);
  describe_outer(o, outer_lr, outer_momentum);
}

void DilocoOptions::describe(OptionSet& o) {
  describe_period(o, period);
  describe_outer(o, outer_lr, outer_momentum);
}

StreamingDilocoOptions DilocoOptions::streaming() const {
  return {
      .period = period, .fragments = 1, .delay = 0, .mix = 0, .outer_lr = outer_lr, .outer_momentum = outer_momentum};
}

void OverlapLocalOptions::describe(OptionSet& o) {
  describe_period(o, period);
  o.real("mix", mix, {0, 1}, kChangesResult, kMixHelp);
  o.real("outer_momentum", outer_momentum, {0, 0.9999}, kChangesResult, "of the shared point (mu)");
}

StreamingDilocoOptions OverlapLocalOptions::streaming() const {
  return {.period = period,
          .fragments = 1,
          .delay = period,
          .mix = mix,
          .outer_lr = 1,
          .outer_momentum = outer_momentum,
          .nesterov = false};
}

}  // namespace slipstream
