// SPDX-License-Identifier: Apache-2.0
#include "strategy/lags_meter.h"

#include <algorithm>

#include "codec/sparse.h"
#include "codec/topk.h"
#include "topology/agree.h"

namespace slipstream {

LagsMeter::LagsMeter(std::vector<std::size_t> counts) : counts_(std::move(counts)), backward_s_(counts_.size()) {}

void LagsMeter::enter(std::size_t layer, double now) {
  if (layer > 0) backward_s_[layer] += now - left_at_;
}

LagsTimes LagsMeter::take(Step& s, double density) {
  Sparse largest;
  const auto values = s.model.grads();
  const double began = s.net.clock().now();
  TopK().pick(values, entries_at(density, values.size()), largest);
  std::vector<double> figures{(s.net.clock().now() - began) /
                              static_cast<double>(std::max<std::size_t>(1, values.size()))};
  for (const double seconds : backward_s_)
    figures.push_back(seconds / static_cast<double>(std::max<std::int64_t>(1, steps_)));
  agree_on_means(s.net, figures);
  std::fill(backward_s_.begin(), backward_s_.end(), 0.0);
  steps_ = 0;
  return {.counts = counts_,
          .backward_s = {figures.begin() + 1, figures.end()},
          .select_s_per_element = figures.front(),
          .link = probe_link(s.net)};
}

}  // namespace slipstream
