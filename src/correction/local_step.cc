// SPDX-License-Identifier: Apache-2.0
#include "correction/local_step.h"

#include <slipstream/base/error.h>

#include "base/vec.h"

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
    optimizer.step(weights, grads, 1.0F, workers_);  // for its moments: the weights are replaced below
  } else if (rule.momentum > 0.0) {
    const double kept = rule.nesterov ? rule.momentum : 0.0;  // V (1 + m) = moved / lr + m V_old
    const auto velocity = optimizer.momentum();
    vec::subtract(weights, weights, updated);
    optimizer.groups().each(0, weights.size(), [&](std::size_t at, std::size_t count, int group) {
      const double lr = optimizer.lr() * rule.lr_factor(group);
      if (lr == 0.0) return;  // moves nothing and tells nothing
      vec::mix(velocity.subspan(at, count), static_cast<float>(kept / (1.0 + kept)), weights.subspan(at, count),
               static_cast<float>(1.0 / (lr * (1.0 + kept))));
    });
  }
  vec::copy(weights, updated);
  if (mix_ > 0.0F) vec::copy(pre_, updated);
}

void LocalStep::adopt(const Optimizer& optimizer, std::span<const float> weights, double rates) {
  if (mix_ == 0.0F) return;
  const OptimizerOptions& rule = optimizer.options();
  check(rule.kind == "sgd", "no gradient can be read off how {} moves weights", rule.kind);
  if (rates > 0.0) {
    vec::subtract(estimate_, pre_, weights);
    optimizer.groups().each(0, weights.size(), [&](std::size_t at, std::size_t count, int group) {
      const auto estimate = std::span(estimate_).subspan(at, count);
      const double own_rates = rates * rule.lr_factor(group), decay = rule.decay(group);
      vec::scale(estimate, own_rates > 0.0 ? static_cast<float>((1.0 - rule.momentum) / own_rates) : 0.0F);
      if (decay > 0.0 && own_rates > 0.0) {
        vec::add_scaled(estimate, std::span(pre_).subspan(at, count), static_cast<float>(-decay));
      }
    });
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
