// SPDX-License-Identifier: Apache-2.0
#include "engine/health.h"

#include <algorithm>

namespace slipstream {

bool Health::exchange(std::int64_t t, const Report& mine) {
  if (!due(t)) return false;
  const bool news = !incoming_.empty();
  std::int64_t interval = 1;
  if (news) {
    gather_.wait();
    all_ = incoming_;
    double slowest = 0;
    for (const Report& report : all_) slowest = std::max(slowest, report.step_seconds);
    if (slowest > 0) {
      interval = std::clamp(static_cast<std::int64_t>(kIntervalSeconds / slowest), std::int64_t{1}, kMaxIntervalSteps);
    }
  }
  due_ = t + interval;
  mine_ = mine;
  incoming_.resize(all_.size());
  gather_ = net_.gather(std::as_bytes(std::span(&mine_, 1)), std::as_writable_bytes(std::span(incoming_)));
  return news;
}

void Health::conclude(const Report& mine) {
  gather_.wait();  // older reports: the new ones include what they say
  mine_ = mine;
  net_.gather(std::as_bytes(std::span(&mine_, 1)), std::as_writable_bytes(std::span(all_))).wait();
}

}  // namespace slipstream
