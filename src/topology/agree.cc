// SPDX-License-Identifier: Apache-2.0
#include "topology/agree.h"

#include <algorithm>
#include <vector>

namespace slipstream {

void agree_on_means(Fabric& net, std::span<double> numbers) {
  std::vector<double> all(numbers.size() * static_cast<std::size_t>(net.size()));
  net.gather(std::as_bytes(numbers), std::as_writable_bytes(std::span(all))).wait();
  std::fill(numbers.begin(), numbers.end(), 0.0);
  for (std::size_t i = 0; i < all.size(); ++i) numbers[i % numbers.size()] += all[i] / net.size();
}

}  // namespace slipstream
