// SPDX-License-Identifier: Apache-2.0
//
// OwnStep: a user's optimizer, of which we know only how to call it: it moves the model's weights by the model's
// gradients, all at once. For strategies that only step (OptimizerUse::kSteps). Of OptimizerOptions only clip_norm and
// lr count, and lr is only reported; saving its state is up to the user.
#pragma once

#include <slipstream/base/error.h>
#include <slipstream/optim/optimizer.h>

#include <functional>

#include "base/vec.h"

namespace slipstream {

class OwnStep final : public Optimizer {
 public:
  // `grads` is what the user's optimizer reads; a scale is applied there.
  OwnStep(const OptimizerOptions& options, std::span<float> grads, std::function<void()> step)
      : Optimizer(without_groups(options), grads.size(), {}), grads_(grads), step_(std::move(step)) {}

  double memory() const override { return 0.0; }
  void visit(StateVisitor&) override {}

 private:
  static OptimizerOptions without_groups(OptimizerOptions options) {
    options.groups.clear();
    return options;
  }
  float whole_direction(std::size_t, std::span<float>, int) override { fail<Error>("an own step has no direction"); }
  void update(std::span<float>, std::span<const float> grads, const Update& by) override {
    check(grads.data() == grads_.data() && grads.size() == grads_.size(),
          "an own step takes the whole model's gradient");
    if (by.scale != 1.0F) vec::scale(grads_, by.scale);
    step_();
  }
  double long_rate() const override { return options_.lr; }

  std::span<float> grads_;
  std::function<void()> step_;
};

}  // namespace slipstream
