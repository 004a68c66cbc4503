// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace slipstream {
namespace {

constexpr std::size_t kShifts = 4096;  // gradients of different steps and ranks use the same noise, shifted
constexpr double kBiasShare = 1.0 / 512;

std::size_t shift(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::size_t>(((a * 0x9E3779B97F4A7C15U) ^ (b * 0xC2B2AE3D27D4EB4FU)) >> 33U) % kShifts;
}

// Shrinks the rows by the square root, so that a matrix keeps about the same shape; they must divide `count`.
std::size_t rows_of(const Parameter& model, std::size_t count) {
  if (model.rows <= 1 || model.count == 0) return 1;
  const double shrink = std::sqrt(static_cast<double>(count) / static_cast<double>(model.count));
  auto rows = std::clamp<std::size_t>(static_cast<std::size_t>(static_cast<double>(model.rows) * shrink), 1, count);
  while (count % rows != 0) --rows;
  return rows;
}

}  // namespace

// The first gradient's time includes forward; as its share of backward it gets the mean of the others, at most its own
// time.
void PlanProfile::take_times(std::vector<double> times) {
  compute_s = std::accumulate(times.begin(), times.end(), 0.0);
  backward_shares.clear();
  if (compute_s <= 0) return;
  const auto others = static_cast<double>(times.size() - 1);
  const double first = others > 0 ? std::min(times[0], (compute_s - times[0]) / others) : 2.0 / 3 * times[0];
  const double forward = times[0] - first;
  times[0] = first;
  forward_share = forward / compute_s;
  backward_shares.assign(times.rbegin(), times.rend());  // from the order of backward to the order of the slots
  for (double& share : backward_shares) share = compute_s > forward ? share / (compute_s - forward) : 0;
}

void PlanProfile::take_link(const LinkCosts& costs) {
  if (workers == 1) return;
  const double sent = 2.0 * (workers - 1) / workers;  // per byte that a rank contributes to a sum
  link.bytes_per_s = sent / std::max(costs.sum.s_per_byte, 1e-12);
  link.latency_s = costs.gather.latency_s;
}

double PlanProfile::parameter_count() const {
  double count = 0;
  for (const Parameter& p : parameters) count += static_cast<double>(p.count);
  return count;
}

std::vector<Parameter> equal_tensors(double parameters, std::int64_t tensors) {
  std::vector<Parameter> all;
  const double each = parameters / static_cast<double>(tensors);
  for (std::int64_t i = 0; i < tensors; ++i) {
    const auto bias = static_cast<std::size_t>(each * kBiasShare);
    const auto weight = static_cast<std::size_t>(each) - bias;
    auto rows = static_cast<std::size_t>(std::sqrt(static_cast<double>(weight)));
    all.push_back({fmt::format("layer{}.weight", i), weight / std::max<std::size_t>(1, rows) * rows, rows});
    all.push_back({fmt::format("layer{}.bias", i), bias});
  }
  return all;
}

StandIn::StandIn(const std::vector<Parameter>& model, std::size_t floats) {
  double total = 0, kept = 0;
  for (const Parameter& p : model) total += static_cast<double>(p.count);
  const double shrink = std::max(1.0, total / static_cast<double>(floats));
  for (const Parameter& p : model) {
    const auto count = p.count == 0 ? 0 : std::max<std::size_t>(1, std::llround(static_cast<double>(p.count) / shrink));
    parameters_.push_back({p.name, count, shrink > 1 ? rows_of(p, count) : p.rows});
    kept += static_cast<double>(count);
  }
  scale_ = kept > 0 ? total / kept : 1;
  Rng rng(1);
  sizes_.resize(static_cast<std::size_t>(kept));
  noise_.resize(sizes_.size() + kShifts);
  for (float& size : sizes_) size = static_cast<float>(std::exp(0.8 * rng.normal()));
  for (float& value : noise_) value = static_cast<float>(0.01 * rng.normal());
}

void StandIn::init(std::span<float> weights, std::uint64_t) const { std::fill(weights.begin(), weights.end(), 1.0F); }

// The loss falls to one half and stays there, for strategies that follow it.
double StandIn::gradient(std::span<const float>, std::span<float> grads, int rank, std::int64_t t) const {
  const auto step = static_cast<std::uint64_t>(t), who = static_cast<std::uint64_t>(rank);
  const float* common = noise_.data() + shift(step + 1, 0);
  const float* own = noise_.data() + shift(step + 1, who + 1);
  for (std::size_t i = 0; i < grads.size(); ++i) grads[i] = sizes_[i] * (common[i] + own[i]);
  return std::max(0.5, 1.0 - static_cast<double>(t) / 48);
}

}  // namespace slipstream
