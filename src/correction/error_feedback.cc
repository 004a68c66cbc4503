// SPDX-License-Identifier: Apache-2.0
#include "correction/error_feedback.h"

#include <algorithm>
#include <cmath>

#include "base/vec.h"

namespace slipstream {
namespace {

constexpr std::size_t kPiece = 2048;     // floats: what is passed over several times stays in the first cache
constexpr std::uint8_t kLookEvery = 64;  // steps between two looks at all ages …
constexpr std::uint8_t kOldest = 191;    // … which hold them here, so that none passes 255 and seems young
constexpr float kReleased = 0.1F;        // without momentum, of an older debt, by a layer that is sent whole

}  // namespace

ErrorFeedback::ErrorFeedback(std::size_t count, double momentum)
    : residual_(count), sent_at_(momentum > 0.0 ? count : 0) {
  for (int age = 0; momentum > 0.0 && age < 256; ++age) {
    shares_.push_back(static_cast<float>(1.0 - std::pow(momentum, 0.5 * (1 + std::max(1, age)))));
  }
}

void ErrorFeedback::begin_step() {
  ++now_;
  if (now_ % kLookEvery != 0) return;
  for (std::uint8_t& at : sent_at_) {
    if (static_cast<std::uint8_t>(now_ - at) > kOldest) at = static_cast<std::uint8_t>(now_ - kOldest);
  }
}

void ErrorFeedback::take(std::size_t offset, std::span<const float> grad, const Rule& rule, std::size_t k,
                         Sparse& out) {
  const auto owed = residual(offset, grad.size());
  select_.accumulate_and_take(owed, grad, rule.factor, k, out);
  if (shares_.empty()) return;
  std::uint64_t ages = 0;
  for (std::size_t j = 0; j < out.indices.size(); ++j) {
    const std::size_t i = out.indices[j];
    ages += age(offset + i);
    const float had = out.values[j], leaves = share(offset + i);
    out.values[j] = leaves * had + (1.0F - leaves) * rule.ahead * grad[i];
    owed[i] = had - out.values[j];
    sent(offset + i);
  }
  mean_age_ = static_cast<double>(ages) / static_cast<double>(std::max<std::size_t>(1, out.indices.size()));
}

void ErrorFeedback::take_all(std::size_t offset, std::span<float> grad, const Rule& rule) {
  for (std::size_t at = 0; at < grad.size(); at += kPiece) {
    const std::size_t count = std::min(kPiece, grad.size() - at);
    const auto g = grad.subspan(at, count), owed = residual(offset + at, count);
    if (shares_.empty()) {
      vec::mix(g, rule.factor, owed, kReleased);
      vec::scale(owed, 1.0F - kReleased);
      continue;
    }
    vec::add_scaled(owed, g, rule.factor);
    vec::mix(g, (1.0F - shares_[1]) * rule.ahead, owed, shares_[1]);
    vec::subtract(owed, owed, g);
  }
  if (!sent_at_.empty()) std::fill_n(sent_at_.begin() + static_cast<std::ptrdiff_t>(offset), grad.size(), now_);
}

// Ages are told as numbers, so that they mean the same at any step.
void ErrorFeedback::visit(StateVisitor& v) {
  v.floats("residual", residual_);
  if (sent_at_.empty()) return;
  std::vector<float> ages(sent_at_.size());
  for (std::size_t i = 0; i < ages.size(); ++i) ages[i] = age(i);
  v.floats("age", ages);
  for (std::size_t i = 0; i < ages.size(); ++i) {
    sent_at_[i] = static_cast<std::uint8_t>(now_ - static_cast<std::uint8_t>(std::clamp(ages[i], 0.0F, 255.0F)));
  }
}

}  // namespace slipstream
