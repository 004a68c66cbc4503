// SPDX-License-Identifier: Apache-2.0
#include "topology/agree.h"

#include <algorithm>
#include <vector>

namespace slipstream {
namespace {

std::vector<double> gather_numbers(Fabric& net, std::span<const double> mine) {
  std::vector<double> all(mine.size() * static_cast<std::size_t>(net.size()));
  net.gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all))).wait();
  return all;
}

}  // namespace

double agree_on_max(Fabric& net, double mine) {
  const auto all = gather_numbers(net, std::span(&mine, 1));
  return *std::max_element(all.begin(), all.end());
}

void agree_on_means(Fabric& net, std::span<double> numbers) {
  const auto all = gather_numbers(net, numbers);
  std::fill(numbers.begin(), numbers.end(), 0.0);
  for (std::size_t i = 0; i < all.size(); ++i) numbers[i % numbers.size()] += all[i] / net.size();
}

}  // namespace slipstream
