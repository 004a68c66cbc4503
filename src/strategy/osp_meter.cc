// SPDX-License-Identifier: Apache-2.0
#include "strategy/osp_meter.h"

#include <algorithm>
#include <span>

#include "base/visit_real.h"

namespace slipstream {

void OspMeter::backward_done(double loss) {
  sums_.loss += loss;
  ++steps_;
  if (step_ended_ >= 0.0) sums_.compute_s += clock_.now() - step_ended_;
}

void OspMeter::exchange_ended(double bytes) {
  const double seconds = clock_.now() - exchange_began_;
  if (seconds > 0.0) sums_.bytes_per_s = std::max(sums_.bytes_per_s, bytes / seconds);
}

// Overlapped traffic that was waited for tells the rate: it took from the end of the last step until it was there. What
// was not waited for says only that the wire is at least as fast; it is then believed to be a little faster each time.
std::vector<IcsMeasure> OspMeter::agree(Fabric& net) {
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, steps_));
  IcsMeasure mine{sums_.loss / steps, sums_.compute_s / steps, sums_.bytes_per_s, sums_.exposed_s / steps};
  const double window_s = mine.compute_s + mine.exposed_s;
  if (overlapped_bytes_ > 0.0 && window_s > 0.0) {
    const bool waited = mine.exposed_s > 0.02 * mine.compute_s;
    mine.bytes_per_s = waited ? overlapped_bytes_ / window_s : 1.05 * mine.bytes_per_s;
  }
  std::vector<IcsMeasure> all(static_cast<std::size_t>(net.size()));
  net.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))).wait();
  sums_ = {.bytes_per_s = mine.bytes_per_s};
  steps_ = 0;
  return all;
}

void OspMeter::visit(StateVisitor& v) {
  sums_.visit(v);
  v.integer("measured_steps", steps_);
  visit_real(v, "overlapped_bytes", overlapped_bytes_);
}

}  // namespace slipstream
