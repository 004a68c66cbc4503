// SPDX-License-Identifier: Apache-2.0
#include "correction/anchor.h"

#include "base/vec.h"

namespace slipstream {

void Anchor::snapshot(std::span<const float> weights, std::span<const float> others) {
  const auto message = std::span(message_);
  if (own_.empty()) {
    vec::copy(message.first(weights.size()), weights);
  } else {
    vec::copy_twice(message.first(weights.size()), own_, weights);
  }
  vec::copy(message.subspan(weights.size()), others);
}

void Anchor::merge_lerp(std::span<float> weights, float keep, int ranks) const {
  vec::mix(weights, keep, std::span(message_).first(weights.size()), (1.0F - keep) / static_cast<float>(ranks));
}

void Anchor::merge_additive(std::span<float> weights, int ranks) const {
  vec::rebase(weights, own_, std::span(message_).first(weights.size()), 1.0F / static_cast<float>(ranks));
}

void Anchor::merge_lerp_others(std::span<float> others, float keep, int ranks) const {
  vec::mix(others, keep, std::span(message_).last(others.size()), (1.0F - keep) / static_cast<float>(ranks));
}

void Anchor::visit(StateVisitor& v) {
  v.floats("message", message_);
  if (!own_.empty()) v.floats("own", own_);
}

}  // namespace slipstream
