// SPDX-License-Identifier: Apache-2.0
#include "strategy/delay_meter.h"

#include <algorithm>
#include <functional>

namespace slipstream {

void DelayMeter::began(double now) {
  began_ = now;
  steps_ = 0;
  took_ = 0;
}

void DelayMeter::stepped(bool arrived) {
  ++steps_;
  if (arrived && took_ == 0) took_ = static_cast<float>(steps_);
}

void DelayMeter::waited(double from, double until) {
  if (took_ > 0) return;
  const auto steps = static_cast<double>(steps_);
  took_ = static_cast<float>(steps + steps * (until - from) / std::max(from - began_, 1e-9));
}

float DelayMeter::agree(Fabric& net) {
  gather_.wait();
  std::rotate(recent_.begin(), recent_.end() - 1, recent_.end());
  recent_[0] = *std::max_element(all_.begin(), all_.end());
  mine_ = took_;
  gather_ = net.gather(std::as_bytes(std::span(&mine_, 1)), std::as_writable_bytes(std::span(all_)));
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
