// SPDX-License-Identifier: Apache-2.0
#include "correction/guess.h"

#include <algorithm>

#include "base/vec.h"

namespace slipstream {

Guess::Guess(Kind kind, const OptimizerOptions& optimizer, std::span<const float> weights)
    : kind_(kind == Kind::kMomentum && optimizer.momentum == 0.0 ? Kind::kPlain : kind),
      momentum_(static_cast<float>(optimizer.momentum)),
      weight_decay_(static_cast<float>(optimizer.weight_decay)),
      nesterov_(optimizer.nesterov),
      global_(weights.begin(), weights.end()),
      velocity_(kind_ == Kind::kMomentum ? weights.size() : 0),
      scratch_(kind_ == Kind::kMomentum ? kPiece : 0) {}

// Piece by piece, so that what a rule passes over several times stays in the first cache.
template <typename Rule>
void Guess::by_piece(std::size_t count, const Rule& rule) {
  for (std::size_t at = 0; at < count; at += kPiece) rule(at, std::min(kPiece, count - at));
}

void Guess::learn(std::size_t offset, std::span<const float> weights, double lr, bool guessed_next) {
  // Nesterov's velocity is learnt from the one before: it is always kept.
  const bool moving = kind_ == Kind::kMomentum && lr > 0.0 && (guessed_next || nesterov_);
  const double kept = nesterov_ ? static_cast<double>(momentum_) : 0.0;  // see the header: V (1 + m) = u + m V_old
  by_piece(weights.size(), [&](std::size_t at, std::size_t count) {
    const auto known = std::span(global_).subspan(offset + at, count);
    const auto learnt = weights.subspan(at, count);
    if (moving) {
      const auto velocity = std::span(velocity_).subspan(offset + at, count), moved = std::span(scratch_).first(count);
      vec::subtract(moved, known, learnt);
      vec::mix(velocity, static_cast<float>(kept / (1.0 + kept)), moved, static_cast<float>(1.0 / (lr * (1.0 + kept))));
    }
    vec::copy(known, learnt);
  });
}

void Guess::predict(std::size_t offset, std::span<const float> grads, double lr, std::span<float> out) {
  const bool momentum = kind_ == Kind::kMomentum;
  by_piece(grads.size(), [&](std::size_t at, std::size_t count) {
    const auto guess = out.subspan(at, count), velocity = std::span(scratch_).first(momentum ? count : 0);
    vec::copy(guess, std::span(global_).subspan(offset + at, count));
    if (kind_ == Kind::kOff) return;
    if (momentum) vec::copy(velocity, std::span(velocity_).subspan(offset + at, count));
    vec::sgd_step(guess, grads.subspan(at, count), velocity,
                  {.lr = static_cast<float>(lr),
                   .momentum = momentum ? momentum_ : 0.0F,
                   .weight_decay = weight_decay_,
                   .nesterov = momentum && nesterov_});
  });
}

void Guess::visit(StateVisitor& v) {
  v.floats("global", global_);
  if (!velocity_.empty()) v.floats("guessed_velocity", velocity_);
}

}  // namespace slipstream
