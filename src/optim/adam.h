// SPDX-License-Identifier: Apache-2.0
//
// Adam (weight decay added to the gradient) and AdamW (weights shrunk by lr * weight_decay, apart from the moments), in
// PyTorch's form. Moments are fp32; the corrections for their start at zero are worked out in double.
#pragma once

#include <slipstream/optim/optimizer.h>

#include <vector>

namespace slipstream {

class Adam final : public Optimizer {
 public:
  Adam(const OptimizerOptions& options, std::size_t count);
  void visit(StateVisitor& v) override;

 private:
  void update(std::span<float> weights, std::span<const float> grads, float scale) override;

  bool decoupled_;  // adamw
  std::vector<float> moment1_;
  std::vector<float> moment2_;
  std::int64_t steps_ = 0;
};

}  // namespace slipstream
