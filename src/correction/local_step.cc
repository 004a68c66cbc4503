// SPDX-License-Identifier: Apache-2.0
#include "correction/local_step.h"

#include "base/vec.h"

namespace slipstream {
namespace {

constexpr float kReleasedDivisor = 8.0F;

}  // namespace

LocalStep::LocalStep(Kind kind, double momentum, double weight_decay, std::span<const float> weights)
    : kind_(kind),
      momentum_(static_cast<float>(momentum)),
      weight_decay_(weight_decay),
      velocity_(momentum > 0.0 ? weights.size() : 0) {
  if (kind == Kind::kPlain) return;
  pre_.assign(weights.begin(), weights.end());
  estimate_.resize(weights.size());
}

void LocalStep::restart(std::span<const float> weights) {
  if (kind_ != Kind::kPlain) vec::copy(pre_, weights);
}

void LocalStep::adopt(std::span<const float> weights, double rates) {
  if (kind_ != Kind::kGlu) return;
  if (rates > 0.0) {
    vec::subtract(estimate_, pre_, weights);
    vec::scale(estimate_, static_cast<float>((1.0 - static_cast<double>(momentum_)) / rates));
    if (weight_decay_ > 0.0) vec::add_scaled(estimate_, pre_, static_cast<float>(-weight_decay_));
    estimated_ = 1;
  }
  vec::copy(pre_, weights);
}

void LocalStep::step(std::span<float> weights, std::span<float> grads, double lr) {
  if (kind_ == Kind::kGlu && estimated_ != 0) vec::lerp(grads, estimate_, 0.5F);
  if (kind_ == Kind::kReleased) {
    vec::copy(estimate_, pre_);
    vec::scale(estimate_, static_cast<float>(1.0 - lr * weight_decay_));
    vec::subtract(estimate_, estimate_, weights);
    vec::copy(pre_, weights);
    vec::scale(grads, 2.0F);
    vec::add_scaled(grads, estimate_, 0.5F / kReleasedDivisor);
  }
  vec::sgd_step(
      weights, grads, velocity_,
      {.lr = static_cast<float>(lr), .momentum = momentum_, .weight_decay = static_cast<float>(weight_decay_)});
}

void LocalStep::visit(StateVisitor& v) {
  if (!velocity_.empty()) v.floats("local_velocity", velocity_);
  if (kind_ == Kind::kPlain) return;
  v.floats("pre", pre_);
  v.floats("estimate", estimate_);
  v.integer("estimated", estimated_);
}

}  // namespace slipstream
