// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd.h"

#include "base/vec.h"

namespace slipstream {
Sgd::Sgd(const OptimizerOptions& options, std::size_t count, OptimizerUse use, const GroupMap& groups)
    : Optimizer(options, count, groups), velocity_(options.momentum > 0.0 && use == OptimizerUse::kSteps ? count : 0) {}

void Sgd::update(std::span<float> weights, std::span<const float> grads, const Update& by) {
  const auto velocity =
      velocity_.empty() ? std::span<float>() : std::span(velocity_).subspan(by.offset, weights.size());
  vec::sgd_step(weights, grads, velocity,
                {.lr = static_cast<float>(by.lr),
                 .momentum = static_cast<float>(options_.momentum),
                 .weight_decay = static_cast<float>(by.weight_decay),
                 .scale = by.scale,
                 .nesterov = options_.nesterov});
}

float Sgd::whole_direction(std::size_t, std::span<float>, int) { return static_cast<float>(long_rate()); }

void Sgd::visit(StateVisitor& v) {
  if (!velocity_.empty()) v.floats("velocity", velocity_);
}

}  // namespace slipstream
