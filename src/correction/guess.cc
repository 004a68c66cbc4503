// SPDX-License-Identifier: Apache-2.0
#include "correction/guess.h"

#include <algorithm>

#include "base/vec.h"

namespace slipstream {

Guess::Guess(Kind kind, const OptimizerOptions& optimizer, std::span<const float> weights, const GroupMap& groups)
    : kind_(kind == Kind::kMomentum && optimizer.momentum == 0.0 ? Kind::kPlain : kind),
      optimizer_(optimizer),
      groups_(groups),
      global_(weights.begin(), weights.end()),
      velocity_(kind_ == Kind::kMomentum ? weights.size() : 0),
      scratch_(kind_ == Kind::kMomentum ? kPiece : 0) {}

// rule(at, count, group): piece by piece, so that what a rule passes over several times stays in the first cache. `at`
// counts from `offset`.
template <typename Rule>
void Guess::by_piece(std::size_t offset, std::size_t count, const Rule& rule) const {
  groups_.each(offset, count, [&](std::size_t begin, std::size_t size, int group) {
    for (std::size_t at = 0; at < size; at += kPiece) rule(begin - offset + at, std::min(kPiece, size - at), group);
  });
}

void Guess::learn(std::size_t offset, std::span<const float> weights, double lr, bool guessed_next) {
  // Nesterov's velocity is learnt from the one before: it is always kept.
  const bool wanted = kind_ == Kind::kMomentum && (guessed_next || optimizer_.nesterov);
  // See the header: V (1 + m) = u + m V_old.
  const double kept = optimizer_.nesterov ? static_cast<double>(static_cast<float>(optimizer_.momentum)) : 0.0;
  by_piece(offset, weights.size(), [&](std::size_t at, std::size_t count, int group) {
    const double own_lr = lr * optimizer_.lr_factor(group);
    const auto known = std::span(global_).subspan(offset + at, count);
    const auto learnt = weights.subspan(at, count);
    if (wanted && own_lr > 0.0) {
      const auto velocity = std::span(velocity_).subspan(offset + at, count), moved = std::span(scratch_).first(count);
      vec::subtract(moved, known, learnt);
      vec::mix(velocity, static_cast<float>(kept / (1.0 + kept)), moved,
               static_cast<float>(1.0 / (own_lr * (1.0 + kept))));
    }
    vec::copy(known, learnt);
  });
}

void Guess::predict(std::size_t offset, std::span<const float> grads, double lr, std::span<float> out) {
  const bool momentum = kind_ == Kind::kMomentum;
  by_piece(offset, grads.size(), [&](std::size_t at, std::size_t count, int group) {
    const auto guess = out.subspan(at, count), velocity = std::span(scratch_).first(momentum ? count : 0);
    vec::copy(guess, std::span(global_).subspan(offset + at, count));
    if (kind_ == Kind::kOff) return;
    if (momentum) vec::copy(velocity, std::span(velocity_).subspan(offset + at, count));
    vec::sgd_step(guess, grads.subspan(at, count), velocity,
                  {.lr = static_cast<float>(lr * optimizer_.lr_factor(group)),
                   .momentum = momentum ? static_cast<float>(optimizer_.momentum) : 0.0F,
                   .weight_decay = static_cast<float>(optimizer_.decay(group)),
                   .nesterov = momentum && optimizer_.nesterov});
  });
}

void Guess::visit(StateVisitor& v) {
  v.floats("global", global_);
  if (!velocity_.empty()) v.floats("guessed_velocity", velocity_);
}

}  // namespace slipstream
