// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd.h"

#include "base/vec.h"

namespace slipstream {

Sgd::Sgd(const OptimizerOptions& options, std::size_t count)
    : Optimizer(options), velocity_(options.momentum == 0.0 ? 0 : count) {}

void Sgd::update(std::span<float> weights, std::span<const float> grads, float scale) {
  vec::sgd_step(weights, grads, velocity_,
                {.lr = static_cast<float>(options_.lr),
                 .momentum = static_cast<float>(options_.momentum),
                 .weight_decay = static_cast<float>(options_.weight_decay),
                 .scale = scale,
                 .nesterov = options_.nesterov});
}

void Sgd::visit(StateVisitor& v) {
  if (!velocity_.empty()) v.floats("velocity", velocity_);
}

}  // namespace slipstream
