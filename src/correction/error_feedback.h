// SPDX-License-Identifier: Apache-2.0
//
// ErrorFeedback: what a worker owes, in units of weights. It remembers, per element, what was not sent, and adds the
// next direction to it: nothing is lost, only late.
//
// It is the worker's velocity as well. A gradient is owed as all that momentum m would ever make of it, lr / (1 - m) g.
// An entry that is sent a steps after it was sent last gives 1 - m^((a+1)/2) of what it holds and keeps the rest: about
// what a velocity gives over the mean age of what came in. Sent in every step it is momentum SGD itself, and what waited
// long gives everything at once. (1 - m^a, all that a velocity gives in a steps, was unstable at high density.) Of a
// layer that is sent whole every entry gives 1 - m, so that what gathered while it was not leaves over some 1 / (1 - m)
// steps; without momentum it gives the gradient and a tenth of what it owed before. All of it at once would be a step
// as long as the many that gathered it. Nesterov's form sends (1 - share) × lr g along.
//
// Invariant: sent + residual is the accumulated value, to rounding; bit for bit in take() without momentum.
// Memory: 4 bytes per element, 5 with momentum.
#pragma once

#include <slipstream/base/state.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/topk.h"

namespace slipstream {

class ErrorFeedback {
 public:
  // `momentum`: of the optimizer (adam: beta1).
  ErrorFeedback(std::size_t count, double momentum);

  void begin_step();

  // A gradient g is owed as factor g; `ahead`: lr where Nesterov looks ahead, else 0.
  struct Rule {
    float factor = 1, ahead = 0;
  };
  // Owes g on [offset, offset + grad.size()), and sends of the k largest entries. Indices count from offset.
  void take(std::size_t offset, std::span<const float> grad, const Rule& rule, std::size_t k, Sparse& out);
  // The same with all entries, of a layer that is sent whole: grad becomes what is sent.
  void take_all(std::size_t offset, std::span<float> grad, const Rule& rule);

  // The mean age, in steps, of what the last take() sent; -1 without momentum, where ages are not kept.
  double mean_age() const { return mean_age_; }

  // The share of an entry that is sent now. Whoever sends entries by itself says so with sent().
  float share(std::size_t i) const { return shares_.empty() ? 1.0F : shares_[age(i)]; }
  void sent(std::size_t i) {
    if (!sent_at_.empty()) sent_at_[i] = now_;
  }

  std::span<float> residual() { return residual_; }
  std::span<float> residual(std::size_t offset, std::size_t count) {
    return std::span(residual_).subspan(offset, count);
  }
  void visit(StateVisitor& v);

 private:
  std::uint8_t age(std::size_t i) const { return static_cast<std::uint8_t>(now_ - sent_at_[i]); }

  std::vector<float> residual_;
  std::vector<float> shares_;          // by age; empty without momentum, as …
  std::vector<std::uint8_t> sent_at_;  // … by element: the step it was sent last in, mod 256
  std::uint8_t now_ = 0;               // this step, mod 256
  double mean_age_ = -1;
  TopK select_;
};

}  // namespace slipstream
