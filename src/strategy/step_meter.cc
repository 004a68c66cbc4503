// SPDX-License-Identifier: Apache-2.0
#include "strategy/step_meter.h"

#include <algorithm>
#include <numeric>

namespace slipstream {

void StepMeter::enter(std::size_t bucket) {
  if (bucket == 0) now_.assign(sums_.size(), 0.0);
  if (left_at_ >= 0) now_[bucket] = clock_.now() - left_at_;
}

void StepMeter::end_step(std::int64_t t, std::int64_t skip) {
  if (t >= skip && left_at_ >= 0 && !now_.empty()) {
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += now_[i];
    totals_.push_back(std::accumulate(now_.begin(), now_.end(), 0.0));
  }
  leave();
}

std::vector<double> StepMeter::means() const {
  std::vector<double> all = sums_;
  for (double& seconds : all) seconds /= static_cast<double>(std::max<std::size_t>(1, totals_.size()));
  return all;
}

}  // namespace slipstream
