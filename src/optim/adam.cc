// SPDX-License-Identifier: Apache-2.0
#include "optim/adam.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cmath>

#include "base/vec.h"

namespace slipstream {

Adam::Adam(const OptimizerOptions& options, std::size_t count, OptimizerUse use, const GroupMap& groups)
    : Optimizer(options, count, groups),
      decoupled_(options.kind == "adamw"),
      moment1_(use == OptimizerUse::kSteps ? count : 0),
      moment2_(use == OptimizerUse::kNothing ? 0 : count) {
  double decay = options.weight_decay;
  for (const ParameterGroup& group : options.groups) decay = std::max(decay, group.weight_decay.value_or(0.0));
  if (use == OptimizerUse::kDirections && !decoupled_ && decay > 0.0) {
    fail<ConfigError>(
        "optimizer=adam adds weight_decay = {} to each gradient, and where only part of a gradient is sent that part "
        "of "
        "it would arrive late and too large; use optimizer=adamw, which decays the weights themselves, or "
        "weight_decay=0",
        decay);
  }
}

float Adam::root_correction2() const {
  return static_cast<float>(std::sqrt(1.0 - std::pow(options_.beta2, static_cast<double>(steps_))));
}

void Adam::update(std::span<float> weights, std::span<const float> grads, const Update& by) {
  const OptimizerOptions& o = options_;
  check(by.offset + weights.size() <= moment1_.size(), "this {} holds no moments to step with", o.kind);
  // Decay that is added to gradients is the same on all workers: their average takes nothing of it away.
  const int averaged_over = !decoupled_ && by.weight_decay > 0.0 ? 1 : by.averaged_over;
  vec::adam_step(weights, grads, std::span(moment1_).subspan(by.offset, weights.size()),
                 std::span(moment2_).subspan(by.offset, weights.size()),
                 {.rate = static_cast<float>(by.lr / (1.0 - std::pow(o.beta1, static_cast<double>(steps_)))),
                  .beta1 = static_cast<float>(o.beta1),
                  .one_minus_beta1 = static_cast<float>(1.0 - o.beta1),
                  .beta2 = static_cast<float>(o.beta2),
                  .one_minus_beta2 = static_cast<float>((1.0 - o.beta2) / averaged_over),
                  .root_correction2 = root_correction2(),
                  .eps = static_cast<float>(o.eps),
                  .l2_decay = decoupled_ ? 0.0F : static_cast<float>(by.weight_decay),
                  .keep = decoupled_ ? static_cast<float>(1.0 - by.lr * by.weight_decay) : 1.0F,
                  .scale = by.scale});
}

float Adam::whole_direction(std::size_t offset, std::span<float> grads, int workers) {
  vec::adam_direction(grads, std::span(moment2_).subspan(offset, grads.size()),
                      {.beta2 = static_cast<float>(options_.beta2),
                       .one_minus_beta2 = static_cast<float>(1.0 - options_.beta2),
                       .root_correction2 = root_correction2() * std::sqrt(static_cast<float>(workers)),
                       .eps = static_cast<float>(options_.eps)});
  return static_cast<float>(options_.lr);
}

void Adam::visit(StateVisitor& v) {
  if (!moment1_.empty()) v.floats("moment1", moment1_);
  if (!moment2_.empty()) v.floats("moment2", moment2_);
  v.integer("steps", steps_);
}

}  // namespace slipstream
