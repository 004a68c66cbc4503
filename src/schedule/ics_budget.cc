// SPDX-License-Identifier: Apache-2.0
#include "schedule/ics_budget.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/visit_real.h"

namespace slipstream {
namespace {

constexpr double kIncrease = 0.05;      // of the cap
constexpr double kDecrease = 0.7;       // factor
constexpr double kHiddenEnough = 0.02;  // of the compute time: shorter waits are timers and wake-ups

}  // namespace

double IcsBudget::update(std::span<const IcsMeasure> all) {
  double loss = 0.0, rate = 0.0, exposed = 0.0, compute = std::numeric_limits<double>::infinity();
  for (const IcsMeasure& one : all) {
    loss += one.loss / static_cast<double>(all.size());
    compute = std::min(compute, one.compute_s);  // the fastest rank must not have to wait for the traffic
    rate = std::max(rate, one.bytes_per_s);      // the last rank to arrive did not wait for the others
    exposed = std::max(exposed, one.exposed_s);
  }
  if (rule_ == Rule::kMeasured) {
    bytes_ = exposed > kHiddenEnough * compute ? bytes_ * kDecrease : bytes_ + kIncrease * cap_bytes_;
  } else {
    if (first_loss_ == 0.0) first_loss_ = loss;
    ramp_ = first_loss_ > 0.0 ? std::clamp(1.0 - loss / first_loss_, 0.0, 1.0) : 1.0;
    bytes_ = rate * compute * ramp_;
  }
  bytes_ = bytes_ < cap_bytes_ ? bytes_ : cap_bytes_;  // a NaN from the loss compares false: becomes the cap
  return bytes_;
}

void IcsMeasure::visit(StateVisitor& v) {
  visit_real(v, "loss_sum", loss);
  visit_real(v, "compute_sum", compute_s);
  visit_real(v, "rate", bytes_per_s);
  visit_real(v, "exposed_sum", exposed_s);
}

void IcsBudget::visit(StateVisitor& v) {
  visit_real(v, "budget_bytes", bytes_);
  visit_real(v, "first_loss", first_loss_);
  visit_real(v, "ramp", ramp_);
}

std::vector<bool> select_ics(const std::vector<IcsCandidate>& candidates, double budget_bytes) {
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return candidates[a].score < candidates[b].score; });
  std::vector<bool> taken(candidates.size());
  double bytes = 0.0;
  for (const std::size_t c : order) {
    if (candidates[c].pinned || bytes + candidates[c].bytes > budget_bytes) continue;
    taken[c] = true;
    bytes += candidates[c].bytes;
  }
  return taken;
}

}  // namespace slipstream
