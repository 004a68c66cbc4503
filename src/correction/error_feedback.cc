// SPDX-License-Identifier: Apache-2.0
#include "correction/error_feedback.h"

#include "base/vec.h"

namespace slipstream {

void ErrorFeedback::take(std::size_t offset, std::span<const float> grad, float scale, float momentum, std::size_t k,
                         Sparse& out) {
  const auto residual = std::span(residual_).subspan(offset, grad.size());
  if (velocity_.empty()) {
    select_.accumulate_and_take(residual, grad, scale, k, out);
    return;
  }
  const auto velocity = std::span(velocity_).subspan(offset, grad.size());
  vec::scale(velocity, momentum);
  vec::add(velocity, grad);
  select_.accumulate_and_take(residual, velocity, scale, k, out);
  for (const std::uint32_t i : out.indices) velocity[i] = 0.0F;  // momentum factor masking
}

void ErrorFeedback::take_all(std::size_t offset, std::span<float> grad, float scale, float momentum, bool settled) {
  if (!velocity_.empty()) {
    const auto velocity = std::span(velocity_).subspan(offset, grad.size());
    vec::scale(velocity, momentum);
    vec::add(velocity, grad);
    vec::copy(grad, velocity);
  }
  if (scale != 1.0F) vec::scale(grad, scale);
  if (settled) return;
  const auto residual = std::span(residual_).subspan(offset, grad.size());
  vec::add(grad, residual);
  vec::zero(residual);
}

void ErrorFeedback::visit(StateVisitor& v) {
  v.floats("residual", residual_);
  if (!velocity_.empty()) v.floats("velocity", velocity_);
}

}  // namespace slipstream
