// SPDX-License-Identifier: Apache-2.0
#include <slipstream/base/clock.h>
#include <slipstream/base/error.h>
#include <slipstream/optim/optimizer.h>

#include <cmath>

#include "base/vec.h"
#include "optim/adam.h"
#include "optim/sgd.h"

namespace slipstream {

void OptimizerOptions::describe(OptionSet& o) {
  o.choice(
      "optimizer", kind, {"sgd", "adam", "adamw"}, kChangesResult,
      "the rule that turns gradients into steps; adam adds weight_decay to the gradient, adamw shrinks the weights");
  o.real("lr", lr, {0.0, 1000.0}, kChangesResult,
         "learning rate: the length of a step; halve it when the loss explodes. 0 stands for 0.05 with sgd and 0.001 "
         "with adam and adamw");
  o.real("momentum", momentum, {0.0, 0.9999}, kChangesResult,
         "sgd only: share of the last step's velocity that is kept; 0 turns it off and saves its memory");
  o.boolean("nesterov", nesterov, kChangesResult, "sgd only: look one step ahead along the velocity; needs momentum");
  o.real("weight_decay", weight_decay, {0.0, 100.0}, kChangesResult,
         "pulls weights towards 0 against overfitting; 1e-4 to 5e-4 is usual with sgd, 0.01 with adamw, 0 is off");
  o.real("beta1", beta1, {0.0, 0.9999}, kChangesResult, "adam, adamw: memory of the mean gradient");
  o.real("beta2", beta2, {0.0, 0.9999999}, kChangesResult, "adam, adamw: memory of the mean squared gradient");
  o.real("eps", eps, {1e-30, 1.0}, kChangesResult,
         "adam, adamw: added to the denominator, so that weights with tiny gradients do not jump");
  o.real("clip_norm", clip_norm, {0.0, 1e30}, kChangesResult,
         "longest gradient (Euclidean norm over the model) a step may use; longer ones are shortened to it; 0 is off");
}

double OptimizerOptions::base_lr() const {
  if (lr > 0.0) return lr;
  return kind == "sgd" ? 0.05 : 0.001;
}

namespace {

void check_lr_factor(std::size_t group, double factor) {
  if (!(factor >= 0.0 && factor <= 1e6)) {
    fail<ConfigError>("lr_factor = {} of parameter group {} must lie between 0 and 1000000", factor, group);
  }
}

void check_groups(const std::vector<ParameterGroup>& groups) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    check_lr_factor(i, groups[i].lr_factor);
    const double decay = groups[i].weight_decay.value_or(0.0);
    if (!(decay >= 0.0 && decay <= 100.0)) {
      fail<ConfigError>("weight_decay = {} of parameter group {} must lie between 0 and 100", decay, i);
    }
  }
}

}  // namespace

Optimizer::Optimizer(const OptimizerOptions& options, std::size_t count, const GroupMap& groups)
    : options_(options), count_(count), groups_(groups) {
  options_.lr = options.base_lr();
  check(groups.size() == (options.groups.empty() ? 0 : count), "{} weights of {} have a parameter group told",
        groups.size(), count);
}

void Optimizer::step(std::span<float> weights, std::span<const float> grads, float scale, int averaged_over) {
  check(weights.size() == count_ && grads.size() == count_, "an optimizer of {} weights was given {} and {} gradients",
        count_, weights.size(), grads.size());
  const auto updating = timed();
  if (options_.clip_norm > 0.0) {
    const double norm = std::abs(static_cast<double>(scale)) * std::sqrt(vec::sum_of_squares(grads));
    const double limit = options_.clip_norm / (norm + 1e-6);  // torch's own guard against a norm of 0
    // Written so that a NaN goes on into the weights, where the caller sees it, instead of vanishing here.
    if (!(limit >= 1.0)) scale = static_cast<float>(scale * limit);
  }
  begin_step();
  groups_.each(0, count_, [&](std::size_t at, std::size_t count, int group) {
    update(weights.subspan(at, count), grads.subspan(at, count),
           {at, options_.lr * options_.lr_factor(group), options_.decay(group), scale, averaged_over});
  });
}

float Optimizer::direction(std::size_t offset, std::span<float> grads, int workers) {
  const float factor = whole_direction(offset, grads, workers);
  groups_.each(offset, grads.size(), [&](std::size_t at, std::size_t count, int group) {
    const auto own = static_cast<float>(options_.lr_factor(group));
    if (own != 1.0F) vec::scale(grads.subspan(at - offset, count), own);
  });
  return factor;
}

void Optimizer::decay(std::size_t offset, std::span<float> weights) const {
  groups_.each(offset, weights.size(), [&](std::size_t at, std::size_t count, int group) {
    const double rate = long_rate() * options_.lr_factor(group) * options_.decay(group);
    if (rate > 0.0) vec::scale(weights.subspan(at - offset, count), static_cast<float>(1.0 - rate));
  });
}

void Optimizer::set_lr_factor(std::size_t group, double factor) {
  if (group >= options_.groups.size()) {
    fail<ConfigError>("there is no parameter group {}: the optimizer has {}, counted from 0", group,
                      options_.groups.size());
  }
  check_lr_factor(group, factor);
  options_.groups[group].lr_factor = factor;
}

namespace {

double now_on(const Clock* clock) { return clock != nullptr ? clock->now() : SteadyClock().now(); }

}  // namespace

// Nested scopes count once.
Optimizer::Timed::Timed(Optimizer& optimizer)
    : optimizer_(optimizer), began_(optimizer.timing_ ? -1.0 : now_on(optimizer.clock_)) {
  optimizer.timing_ = true;
}

Optimizer::Timed::~Timed() {
  if (began_ < 0.0) return;
  optimizer_.timing_ = false;
  optimizer_.count_update(began_, now_on(optimizer_.clock_));
}

void Optimizer::count_update(double began, double ended) {
  seconds_ += ended - began;
  if (on_update) on_update(began, ended);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, std::size_t count, OptimizerUse use,
                                          const GroupMap& groups) {
  // Fields set in code pass the same checks as those set by name.
  OptimizerOptions checked = options;
  OptionSet described("optimizer");
  checked.describe(described);
  for (const Option& option : described.all()) option.set(option.get());
  check_groups(options.groups);

  if (options.kind != "sgd") {
    if (options.nesterov) {
      fail<ConfigError>("optimizer {} has no Nesterov form; leave out nesterov=true or use optimizer=sgd",
                        options.kind);
    }
    return std::make_unique<Adam>(options, count, use, groups);
  }
  if (options.nesterov && options.momentum == 0.0) {
    fail<ConfigError>(
        "nesterov=true looks ahead along the velocity, and momentum=0 leaves none; set momentum=0.9 or "
        "nesterov=false");
  }
  return std::make_unique<Sgd>(options, count, use, groups);
}

}  // namespace slipstream
