// SPDX-License-Identifier: Apache-2.0
#include "optim/adam.h"

#include <cmath>

#include "base/vec.h"

namespace slipstream {

Adam::Adam(const OptimizerOptions& options, std::size_t count)
    : Optimizer(options), decoupled_(options.kind == "adamw"), moment1_(count), moment2_(count) {}

void Adam::update(std::span<float> weights, std::span<const float> grads, float scale) {
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const OptimizerOptions& o = options_;
  vec::adam_step(weights, grads, moment1_, moment2_,
                 {.rate = static_cast<float>(o.lr / (1.0 - std::pow(o.beta1, t))),
                  .beta1 = static_cast<float>(o.beta1),
                  .one_minus_beta1 = static_cast<float>(1.0 - o.beta1),
                  .beta2 = static_cast<float>(o.beta2),
                  .one_minus_beta2 = static_cast<float>(1.0 - o.beta2),
                  .root_correction2 = static_cast<float>(std::sqrt(1.0 - std::pow(o.beta2, t))),
                  .eps = static_cast<float>(o.eps),
                  .l2_decay = decoupled_ ? 0.0F : static_cast<float>(o.weight_decay),
                  .keep = decoupled_ ? static_cast<float>(1.0 - o.lr * o.weight_decay) : 1.0F,
                  .scale = scale});
}

void Adam::visit(StateVisitor& v) {
  v.floats("moment1", moment1_);
  v.floats("moment2", moment2_);
  v.integer("steps", steps_);
}

}  // namespace slipstream
