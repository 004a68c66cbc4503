// SPDX-License-Identifier: Apache-2.0
//
// Stochastic gradient descent with momentum, Nesterov and weight decay, in PyTorch's form: the learning rate multiplies
// the velocity when it is applied, not when it is accumulated, so a changed rate acts at once. The velocity starts at
// zero, which makes the first step's velocity the gradient itself. Without momentum, or without step(), there is no
// state.
#pragma once

#include <slipstream/optim/optimizer.h>

#include <vector>

namespace slipstream {

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, std::size_t count, OptimizerUse use, const GroupMap& groups);
  double memory() const override { return options_.momentum; }
  std::span<float> momentum() override { return velocity_; }
  void visit(StateVisitor& v) override;

 private:
  void update(std::span<float> weights, std::span<const float> grads, const Update& by) override;
  float whole_direction(std::size_t offset, std::span<float> grads, int workers) override;
  double long_rate() const override { return options_.lr / (1.0 - options_.momentum); }

  std::vector<float> velocity_;
};

}  // namespace slipstream
