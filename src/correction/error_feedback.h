// SPDX-License-Identifier: Apache-2.0
//
// ErrorFeedback: what a worker owes. It remembers, per element, what selection left behind, and adds it to the next
// gradient: nothing is lost, only late. With momentum correction (DGC) the memory collects velocities instead of
// gradients and forgets the velocity of what was sent.
//
// Invariant: taken + residual is the accumulated value, bit for bit.
#pragma once

#include <slipstream/base/state.h>

#include <cstddef>
#include <span>
#include <vector>

#include "codec/topk.h"

namespace slipstream {

class ErrorFeedback {
 public:
  // With `correct_momentum` every take() first computes u = momentum u + g and accumulates u.
  ErrorFeedback(std::size_t count, bool correct_momentum) : residual_(count), velocity_(correct_momentum ? count : 0) {}

  // residual += scale g (or scale u) on [offset, offset + grad.size()); its k largest entries move to `out`, with
  // indices that count from offset.
  void take(std::size_t offset, std::span<const float> grad, float scale, float momentum, std::size_t k, Sparse& out);

  // All of residual + scale g (or scale u) moves to `grad`. Nothing is selected, so no velocity is forgotten. With
  // `settled` the residual is known to be 0 there and is not touched.
  void take_all(std::size_t offset, std::span<float> grad, float scale, float momentum, bool settled);

  std::span<float> residual() { return residual_; }
  void visit(StateVisitor& v);

 private:
  std::vector<float> residual_;
  std::vector<float> velocity_;  // empty without correction
  TopK select_;
};

}  // namespace slipstream
