// SPDX-License-Identifier: Apache-2.0
#include "correction/local_step.h"

#include <slipstream/base/error.h>

#include "base/vec.h"
#include "optim/momentum.h"

namespace slipstream {

LocalStep::LocalStep(double mix, std::span<const float> weights, int workers)
    : mix_(static_cast<float>(mix)), workers_(workers) {
  if (mix == 0.0) return;
  pre_.assign(weights.begin(), weights.end());
  estimate_.resize(weights.size());
}

void LocalStep::follow(Optimizer& optimizer, std::span<float> weights, std::span<const float> grads,
                       std::span<const float> updated) {
  const OptimizerOptions& rule = optimizer.options();
  if (rule.kind != "sgd") {
    optimizer.step(weights, grads, 1.0F, workers_);           // for its moments: the weights are replaced below
  } else if (rule.momentum > 0.0 && optimizer.lr() > 0.0) {   // a rate of 0 moves nothing and tells nothing
    const double kept = rule.nesterov ? rule.momentum : 0.0;  // V (1 + m) = moved / lr + m V_old
    vec::subtract(weights, weights, updated);
    vec::mix(momentum_of(optimizer), static_cast<float>(kept / (1.0 + kept)), weights,
             static_cast<float>(1.0 / (optimizer.lr() * (1.0 + kept))));
  }
  vec::copy(weights, updated);
  if (mix_ > 0.0F) vec::copy(pre_, updated);
}

void LocalStep::adopt(const OptimizerOptions& rule, std::span<const float> weights, double rates) {
  if (mix_ == 0.0F) return;
  check(rule.kind == "sgd", "no gradient can be read off how {} moves weights", rule.kind);
  if (rates > 0.0) {
    vec::subtract(estimate_, pre_, weights);
    vec::scale(estimate_, static_cast<float>((1.0 - rule.momentum) / rates));
    if (rule.weight_decay > 0.0) vec::add_scaled(estimate_, pre_, static_cast<float>(-rule.weight_decay));
    estimated_ = 1;
  }
  vec::copy(pre_, weights);
}

void LocalStep::step(Optimizer& optimizer, std::span<float> weights, std::span<float> grads, double lr) {
  if (estimated_ != 0) vec::lerp(grads, estimate_, 1.0F - mix_);
  const double servers_lr = optimizer.lr();
  optimizer.set_lr(lr);
  optimizer.step(weights, grads, 1.0F, workers_);
  optimizer.set_lr(servers_lr);
}

void LocalStep::visit(StateVisitor& v) {
  if (mix_ == 0.0F) return;
  v.floats("pre", pre_);
  v.floats("estimate", estimate_);
  v.integer("estimated", estimated_);
}

}  // namespace slipstream
