// SPDX-License-Identifier: Apache-2.0
#include "strategy/delay_meter.h"

#include <algorithm>
#include <functional>

namespace slipstream {

void DelayMeter::began() {
  began_s_ = net_.clock().now();
  steps_ = 0;
  took_ = 0;
}

void DelayMeter::stepped(bool arrived) {
  ++steps_;
  if (arrived && took_ == 0) took_ = static_cast<float>(steps_);
}

void DelayMeter::waits(const std::function<void()>& wait) {
  const double asked_s = net_.clock().now();
  wait();
  if (took_ > 0 || steps_ == 0) return;  // without a step there is nothing to measure a wait by
  const auto steps = static_cast<double>(steps_);
  const double waited_s = net_.clock().now() - asked_s, step_s = (asked_s - began_s_) / steps;
  took_ = static_cast<float>(steps + waited_s / std::max(step_s, 1e-9));
}

float DelayMeter::agree() {
  gather_.wait();
  std::rotate(recent_.begin(), recent_.end() - 1, recent_.end());
  recent_[0] = *std::min_element(all_.begin(), all_.end());
  mine_ = took_;
  gather_ = net_.gather(std::as_bytes(std::span(&mine_, 1)), std::as_writable_bytes(std::span(all_)));
  auto sorted = recent_;
  std::sort(sorted.begin(), sorted.end(), std::greater());
  return sorted[1];
}

void DelayMeter::visit(StateVisitor& v) {
  settle();
  v.integer("steps", steps_);
  v.floats("took", std::span(&took_, 1));
  v.floats("all", all_);
  v.floats("recent", recent_);
}

}  // namespace slipstream
