// SPDX-License-Identifier: Apache-2.0
#include "correction/guess.h"

#include "base/vec.h"

namespace slipstream {

Guess::Guess(Kind kind, const OptimizerOptions& optimizer, std::span<const float> weights)
    : kind_(kind == Kind::kMomentum && optimizer.momentum == 0.0 ? Kind::kPlain : kind),
      momentum_(static_cast<float>(optimizer.momentum)),
      weight_decay_(static_cast<float>(optimizer.weight_decay)),
      nesterov_(optimizer.nesterov),
      global_(weights.begin(), weights.end()),
      velocity_(kind_ == Kind::kMomentum ? weights.size() : 0) {}

void Guess::learn(std::size_t offset, std::span<const float> weights, double lr) {
  const auto known = std::span(global_).subspan(offset, weights.size());
  if (kind_ == Kind::kMomentum && lr > 0.0) {
    const auto velocity = std::span(velocity_).subspan(offset, weights.size());
    scratch_.resize(weights.size());
    vec::subtract(scratch_, known, weights);
    const double kept = nesterov_ ? static_cast<double>(momentum_) : 0.0;  // see the header: V (1 + m) = u + m V_old
    vec::scale(velocity, static_cast<float>(kept / (1.0 + kept)));
    vec::add_scaled(velocity, scratch_, static_cast<float>(1.0 / (lr * (1.0 + kept))));
  }
  vec::copy(known, weights);
}

void Guess::predict(std::size_t offset, std::span<const float> grads, double lr, std::span<float> out) {
  vec::copy(out, std::span(global_).subspan(offset, grads.size()));
  if (kind_ == Kind::kOff) return;
  const bool momentum = kind_ == Kind::kMomentum;
  scratch_.resize(momentum ? grads.size() : 0);
  if (momentum) vec::copy(scratch_, std::span(velocity_).subspan(offset, grads.size()));
  vec::sgd_step(out, grads, scratch_,
                {.lr = static_cast<float>(lr),
                 .momentum = momentum ? momentum_ : 0.0F,
                 .weight_decay = weight_decay_,
                 .nesterov = momentum && nesterov_});
}

void Guess::visit(StateVisitor& v) {
  v.floats("global", global_);
  if (!velocity_.empty()) v.floats("guessed_velocity", velocity_);
}

}  // namespace slipstream
