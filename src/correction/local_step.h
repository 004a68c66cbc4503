// SPDX-License-Identifier: Apache-2.0
//
// LocalStep: how a worker moves its own copy of the weights while it does not see the global ones (GLU, the global
// gradient of SSD-SGD's local update). The step is the servers' own rule, whatever it is, made by the worker's optimizer:
//
//   c = (1 - mix) g + mix h;   w = w - step(c)
//
// with g the own gradient and h an estimate of the global one, taken from how the global weights moved from `pre` to W:
//
//   h = (1 - momentum) (pre - W) / (sum of the rates since pre) - weight_decay pre    (0 where the rate is 0)
//
// The first factor makes up for the velocity, which lets a constant gradient count 1 / (1 - momentum) times. Without an
// estimate (before the global weights were seen to move twice) and with mix = 0 the step is made with g alone.
//
// So that w moves as the servers' weights do, the optimizer's state must be theirs. While the worker sees every one of
// their updates (a warm-up), `follow` reads the velocity off how they moved: (W_old - W_new) / lr, for Nesterov's form
// ((W_old - W_new) / lr + m V_old) / (1 + m). Adam's moments cannot be read off; they are gathered from the own
// gradients, with a P-th of their squares in the variance, as a mean of P gradients has it: with all of it, own steps
// would be up to sqrt(P) times shorter than the servers'. Nor can a gradient be read off Adam's steps: with adam and
// adamw the mix must be 0.
//
// The optimizer is the caller's, and so is its state.
#pragma once

#include <slipstream/base/state.h>
#include <slipstream/optim/optimizer.h>

#include <cstdint>
#include <span>
#include <vector>

namespace slipstream {

class LocalStep {
 public:
  LocalStep() = default;
  // `weights` are the global ones, and the worker's; the servers step by the mean of so many workers' gradients.
  LocalStep(double mix, std::span<const float> weights, int workers);

  // The servers have made one update with the optimizer's rate: from `weights` to `updated`, which the weights become.
  // `grads` are the worker's own.
  void follow(Optimizer& optimizer, std::span<float> weights, std::span<const float> grads,
              std::span<const float> updated);
  // The global weights were adopted; `rates` is the sum of the learning rates of the steps since the last adoption.
  void adopt(const Optimizer& optimizer, std::span<const float> weights, double rates);
  // Moves the weights by `lr`; uses `grads` as scratch.
  void step(Optimizer& optimizer, std::span<float> weights, std::span<float> grads, double lr);

  void visit(StateVisitor& v);
  std::span<const float> estimate() const { return estimate_; }  // h; empty without a mix

 private:
  float mix_ = 0.0F;
  int workers_ = 1;
  std::vector<float> pre_, estimate_;  // empty without a mix
  std::int64_t estimated_ = 0;         // is there an estimate?
};

}  // namespace slipstream
