// SPDX-License-Identifier: Apache-2.0
#include "topology/link_probe.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "topology/agree.h"

namespace slipstream {
namespace {

constexpr std::size_t kSmallBytes = 1024, kLargestBytes = 4 << 20;
constexpr std::size_t kSmallSumBytes = 96 << 10;  // shorter sums travel differently, with one delay instead of two
constexpr double kLongEnough_s = 0.015;
constexpr int kRepeats = 5;  // of a small message; the fastest counts

// The mean over ranks of the time that `operation(bytes)` blocks. A rank that comes late waits less and the others wait
// more; in the mean that largely cancels, between two ranks exactly.
template <typename Run>
double timed(Fabric& net, const Run& operation, std::size_t bytes) {
  const double began = net.clock().now();
  operation(bytes);
  double seconds = net.clock().now() - began;
  agree_on_means(net, std::span(&seconds, 1));
  return seconds;
}

template <typename Run>
double fastest(Fabric& net, const Run& operation, std::size_t bytes, int repeats) {
  double best_s = timed(net, operation, bytes);
  for (int i = 1; i < repeats; ++i) best_s = std::min(best_s, timed(net, operation, bytes));
  return best_s;
}

// The size of a message whose bytes take long enough, beyond the delay that every message has. It must do so twice in a
// row: then neither a shaper's first burst nor a pause of a busy machine explains it.
template <typename Run>
std::size_t measurable_bytes(Fabric& net, const Run& operation) {
  const double small_s = fastest(net, operation, kSmallBytes, kRepeats);
  std::size_t bytes = 2 * kSmallBytes;
  while (bytes < kLargestBytes && fastest(net, operation, bytes, 2) - small_s < kLongEnough_s) bytes *= 2;
  return bytes;
}

template <typename Run>
LinkCost fit(Fabric& net, const Run& operation, std::size_t small, std::size_t large) {
  const double large_s = fastest(net, operation, large, 2);
  const double small_s = std::min(large_s, fastest(net, operation, small, kRepeats));
  const double rate = (large_s - small_s) / static_cast<double>(large - small);
  return {std::max(0.0, small_s - rate * static_cast<double>(small)), rate};
}

}  // namespace

LinkCosts probe_link(Fabric& net) {
  if (net.size() == 1) return {};
  std::vector<std::byte> mine(kLargestBytes), all;
  std::vector<float> values(kLargestBytes / sizeof(float));
  const auto gather = [&](std::size_t bytes) {
    all.resize(bytes * static_cast<std::size_t>(net.size()));
    net.gather(std::span(mine).first(bytes), all).wait();
  };
  const auto sum = [&](std::size_t bytes) { net.sum(std::span(values).first(bytes / sizeof(float))).wait(); };
  const std::size_t bytes = measurable_bytes(net, gather);
  return {fit(net, gather, kSmallBytes, bytes), fit(net, sum, kSmallSumBytes, std::max(bytes, 2 * kSmallSumBytes))};
}

}  // namespace slipstream
