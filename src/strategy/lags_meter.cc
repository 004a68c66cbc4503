// SPDX-License-Identifier: Apache-2.0
#include "strategy/lags_meter.h"

#include <algorithm>

#include "codec/sparse.h"
#include "codec/topk.h"
#include "topology/agree.h"

namespace slipstream {

namespace {

constexpr std::int64_t kNotMeasured = 3;  // steps

}  // namespace

LagsMeter::LagsMeter(Fabric& net, std::vector<std::size_t> counts)
    : net_(net), counts_(std::move(counts)), backward_s_(counts_.size()) {}

void LagsMeter::enter(std::int64_t step, std::size_t layer) {
  if (step >= kNotMeasured && layer > 0) backward_s_[layer] += net_.clock().now() - left_at_;
}

void LagsMeter::leave() { left_at_ = net_.clock().now(); }

void LagsMeter::end_step(std::int64_t step) {
  if (step >= kNotMeasured) ++steps_;
}

LagsTimes LagsMeter::take(std::span<const float> values, double density) {
  Sparse largest;
  const double began = net_.clock().now();
  TopK().pick(values, entries_at(density, values.size()), largest);
  std::vector<double> figures{(net_.clock().now() - began) /
                              static_cast<double>(std::max<std::size_t>(1, values.size()))};
  for (const double seconds : backward_s_)
    figures.push_back(seconds / static_cast<double>(std::max<std::int64_t>(1, steps_)));
  agree_on_means(net_, figures);
  std::fill(backward_s_.begin(), backward_s_.end(), 0.0);
  steps_ = 0;
  return {.counts = counts_,
          .backward_s = {figures.begin() + 1, figures.end()},
          .select_s_per_element = figures.front(),
          .link = probe_link(net_)};
}

}  // namespace slipstream
