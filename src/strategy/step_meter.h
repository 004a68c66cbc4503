// SPDX-License-Identifier: Apache-2.0
//
// StepMeter: how long a worker computes between its strategy's hooks: from the end of a step to the first gradient, and
// from each gradient to the next. For a strategy whose buckets are single tensors. It decides nothing.
#pragma once

#include <slipstream/base/clock.h>

#include <cstdint>
#include <vector>

namespace slipstream {

class StepMeter {
 public:
  StepMeter(const Clock& clock, std::size_t buckets) : clock_(clock), sums_(buckets) {}

  // Around the work of the hooks: time between two of them is the worker's. The first `skip` steps do not count.
  void enter(std::size_t bucket);
  void leave() { left_at_ = clock_.now(); }
  void end_step(std::int64_t t, std::int64_t skip);  // in place of leave(), of the hook that ends a step

  const std::vector<double>& totals() const { return totals_; }  // by step that counted
  // Means over those steps, by bucket; the first holds forward as well.
  std::vector<double> means() const;

 private:
  const Clock& clock_;
  std::vector<double> sums_, now_;
  std::vector<double> totals_;
  double left_at_ = -1;  // negative: no step has ended yet
};

}  // namespace slipstream
