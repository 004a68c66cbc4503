// SPDX-License-Identifier: Apache-2.0
//
// Adam (weight decay added to the gradient) and AdamW (weights shrunk by lr * weight_decay, apart from the moments), in
// PyTorch's form. Moments are fp32; the corrections for their start at zero are computed in double.
#pragma once

#include <slipstream/optim/optimizer.h>

#include <vector>

namespace slipstream {

class Adam final : public Optimizer {
 public:
  Adam(const OptimizerOptions& options, std::size_t count, OptimizerUse use, const GroupMap& groups);
  double memory() const override { return options_.beta1; }
  std::span<float> momentum() override { return moment1_; }
  void visit(StateVisitor& v) override;

 private:
  void update(std::span<float> weights, std::span<const float> grads, const Update& by) override;
  float whole_direction(std::size_t offset, std::span<float> grads, int workers) override;
  double long_rate() const override { return options_.lr; }
  float root_correction2() const;  // sqrt(1 - beta2^t)

  bool decoupled_;              // adamw
  std::vector<float> moment1_;  // empty unless step() is used
  std::vector<float> moment2_;  // with directions: of the worker's own gradient
};

}  // namespace slipstream
