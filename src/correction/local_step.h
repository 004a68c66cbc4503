// SPDX-License-Identifier: Apache-2.0
//
// LocalStep: how a worker moves its own copy of the weights while it does not see the global ones (GLU, the global
// gradient of SSD-SGD's local update). One step is
//
//   c = a g + b h;   v = momentum v + c + weight_decay w;   w = w - lr v        (without momentum: no v)
//
// with g the own gradient and h an estimate of the global one, taken from how the global weights moved:
//
//   plain      a = 1, b = 0
//   glu        a = b = 1/2;  h = (1 - momentum) (pre - W) / (sum of the rates since pre) - weight_decay pre, at every
//              adoption of W; pre = W then. Before the first adoption there is no h: plain. The first factor makes up
//              for the velocity, which lets a constant c count 1 / (1 - momentum) times
//   released   a = 2, b = 1/2;  h = ((1 - lr weight_decay) pre - w) / 8, pre = w before the step: the constants of the
//              authors' released prototype, where the difference of two local steps stands for the global gradient
#pragma once

#include <slipstream/base/state.h>

#include <cstddef>
#include <span>
#include <vector>

namespace slipstream {

class LocalStep {
 public:
  enum class Kind { kPlain, kGlu, kReleased };

  LocalStep() = default;
  // `weights` are the global ones, and the worker's.
  LocalStep(Kind kind, double momentum, double weight_decay, std::span<const float> weights);

  // The global weights were adopted; `rates` is the sum of the learning rates of the steps since the last adoption.
  void adopt(std::span<const float> weights, double rates);
  // The global weights are known, but nothing is learned from how they moved (a warm-up).
  void restart(std::span<const float> weights);

  // Moves the weights; uses `grads` as scratch.
  void step(std::span<float> weights, std::span<float> grads, double lr);

  void visit(StateVisitor& v);
  std::span<const float> estimate() const { return estimate_; }  // h

 private:
  Kind kind_ = Kind::kPlain;
  float momentum_ = 0.0F;
  double weight_decay_ = 0.0;
  std::vector<float> velocity_, pre_, estimate_;  // empty where the kind has none
  std::int64_t estimated_ = 0;                    // is there an estimate?
};

}  // namespace slipstream
