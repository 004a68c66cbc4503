// SPDX-License-Identifier: Apache-2.0
//
// LagsMeter: the times that LAGS plans with, taken while it trains: how long backward works between one layer's gradient
// and the next, what a selection and its entries cost the processor, what the link costs. All ranks hold the same figures
// afterwards. It decides nothing.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "codec/sparse_payload.h"
#include "strategy/lags_plan.h"

namespace slipstream {

class LagsMeter {
 public:
  LagsMeter(Fabric& net, std::vector<std::size_t> counts);  // elements by layer, in the order of backward

  // Around the work of a bucket hook: the time between two hooks is backward's. The first steps of a job are too
  // irregular to count.
  void enter(std::int64_t step, std::size_t layer);
  void leave();
  void end_step(std::int64_t step);

  // Means over the steps since the last call, over all ranks; measures the link, and what entries of these values cost
  // the processor in this format, few (this density) and many. Blocks.
  LagsTimes take(std::span<const float> values, double density, ValueFormat format);

  const std::vector<std::size_t>& counts() const { return counts_; }

 private:
  // Seconds to select k of these values, and from then on until the lists of all ranks are added.
  std::pair<double, double> handling_s(std::span<const float> values, std::size_t k, ValueFormat format);

  Fabric& net_;
  std::vector<std::size_t> counts_;
  std::vector<double> backward_s_;  // by layer: sums
  std::int64_t steps_ = 0;
  double left_at_ = 0;
};

}  // namespace slipstream
