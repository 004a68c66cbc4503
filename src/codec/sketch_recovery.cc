// SPDX-License-Identifier: Apache-2.0
//
// The coordinates that a sketch estimates to be heavy: CountSketch::heaviest and CountSketch::heavymix.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "base/rng.h"
#include "codec/count_sketch.h"
#include "codec/topk.h"

namespace slipstream {
namespace {

// One less than the magnitude bits of the smallest float whose exact square is at least `square`.
std::int32_t bits_below_root(double square) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto reaches = [&](float x) { return static_cast<double>(x) * static_cast<double>(x) >= square; };
  float root = static_cast<float>(std::sqrt(square));
  while (root > 0 && reaches(std::nextafter(root, 0.0F))) root = std::nextafter(root, 0.0F);
  while (root < kInfinity && !reaches(root)) root = std::nextafter(root, kInfinity);
  return std::bit_cast<std::int32_t>(root) - 1;
}

// `count` different numbers below n, every set of them equally likely (Floyd), in ascending order.
std::vector<std::uint32_t> draw_below(std::size_t n, std::size_t count, Rng& random) {
  std::unordered_set<std::uint32_t> drawn(2 * count);
  for (std::size_t top = n - count; top < n; ++top) {
    const auto number = static_cast<std::uint32_t>(random.below(top + 1));
    if (!drawn.insert(number).second) drawn.insert(static_cast<std::uint32_t>(top));
  }
  std::vector<std::uint32_t> numbers(drawn.begin(), drawn.end());
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace

Sparse CountSketch::largest(std::size_t d, std::size_t count) const {
  Sparse found;
  TopK().pick(
      d, std::min(count, d), [this](std::size_t first, std::span<float> out) { estimate(first, out); }, found);
  return found;
}

std::vector<std::uint32_t> CountSketch::heaviest(std::size_t d, std::size_t count) const {
  check_range("heaviest", 0, d);
  return largest(d, count).indices;
}

std::vector<std::uint32_t> CountSketch::heavymix(std::size_t d, std::size_t k, std::uint64_t rng_seed) const {
  check_range("heavymix", 0, d);
  k = std::min(k, d);
  if (k == 0) return {};
  const std::int32_t threshold = bits_below_root(l2_squared() / static_cast<double>(k));
  const Sparse found = largest(d, k);
  std::vector<std::uint32_t> heavy;
  for (std::size_t j = 0; j < found.indices.size(); ++j) {
    if (std::bit_cast<std::int32_t>(std::fabs(found.values[j])) > threshold) heavy.push_back(found.indices[j]);
  }
  Rng random(rng_seed, sketch::kFillStream);
  // The draws number the coordinates that are not heavy; walking along the heavy ones turns them into indices.
  std::vector<std::uint32_t> chosen = draw_below(d - heavy.size(), k - heavy.size(), random);
  std::size_t passed = 0;
  for (std::uint32_t& index : chosen) {
    while (passed < heavy.size() && heavy[passed] <= index + passed) ++passed;
    index += static_cast<std::uint32_t>(passed);
  }
  const auto middle = static_cast<std::ptrdiff_t>(chosen.size());
  chosen.insert(chosen.end(), heavy.begin(), heavy.end());
  std::inplace_merge(chosen.begin(), chosen.begin() + middle, chosen.end());
  return chosen;
}

}  // namespace slipstream
