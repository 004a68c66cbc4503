// SPDX-License-Identifier: Apache-2.0
//
// Which coordinates a sketch holds to be heavy: CountSketch::heaviest and CountSketch::heavymix.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_set>

#include "base/rng.h"
#include "codec/count_sketch.h"

namespace slipstream {
namespace {

constexpr std::size_t kChunk = 4096;  // estimates made at a time: they stay in the first-level cache

// Keeps the `count` heaviest, in the order they are in, and returns the magnitude bits of the lightest.
std::int32_t keep_heaviest(std::vector<std::uint64_t>& ranks, std::size_t count) {
  std::vector<std::uint64_t> ordered = ranks;
  const auto last = ordered.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(ordered.begin(), last, ordered.end(), std::greater<>());
  std::size_t kept = 0;
  for (const std::uint64_t rank : ranks) {  // every second one stays: a branch would be mispredicted
    ranks[kept] = rank;
    kept += rank >= *last ? 1 : 0;
  }
  ranks.resize(count);
  return static_cast<std::int32_t>(*last >> 32);
}

// The magnitude bits just below the least float whose square, exactly, is not below `square`.
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

// One pass over all estimates in ascending order of index. A coordinate that only equals the lightest of `count` kept
// ones loses against its lower index, so "above the threshold" is exact after a trimming. Each trimming costs a few
// times `count` and is followed by at least `count` arrivals: the whole is linear in d at worst.
std::vector<std::uint32_t> CountSketch::select(std::size_t d, std::size_t count, std::int32_t threshold) const {
  std::vector<std::uint64_t> kept;
  std::array<float, kChunk> estimates;
  std::array<std::uint64_t, kChunk> arrivals;
  for (std::size_t first = 0; count > 0 && first < d; first += kChunk) {
    const std::span<float> chunk(estimates.data(), std::min(kChunk, d - first));
    estimate(first, chunk);
    const std::size_t arrived =
        sketch::collect_above(chunk, static_cast<std::uint32_t>(first), threshold, arrivals.data());
    kept.insert(kept.end(), arrivals.begin(), arrivals.begin() + static_cast<std::ptrdiff_t>(arrived));
    if (kept.size() >= 2 * count) threshold = keep_heaviest(kept, count);
  }
  if (kept.size() > count) keep_heaviest(kept, count);
  std::vector<std::uint32_t> indices(kept.size());
  std::transform(kept.begin(), kept.end(), indices.begin(), sketch::index_of);
  return indices;
}

// A threshold that probably somewhat more than `count` coordinates pass, from 1,024 samples of four blocks.
std::int32_t CountSketch::guess_threshold(std::size_t d, std::size_t count) const {
  constexpr std::size_t kSamples = 1024, kSample = 64;
  if (d < 4 * kSamples * kSample) return -1;
  std::vector<float> sample(kSamples * kSample);
  for (std::size_t s = 0; s < kSamples; ++s) {
    const std::size_t first = s * (d / kSamples);
    estimate(first - first % sketch::kBlock, std::span(sample).subspan(s * kSample, kSample));
  }
  const double expected = static_cast<double>(count) * static_cast<double>(sample.size()) / static_cast<double>(d);
  const auto position = static_cast<std::size_t>(expected + 5.0 * std::sqrt(expected) + 5.0);
  if (position >= sample.size()) return -1;
  std::vector<std::uint64_t> ranks(sample.size());
  ranks.resize(sketch::collect_above(sample, 0, -1, ranks.data()));
  return keep_heaviest(ranks, position + 1);
}

std::vector<std::uint32_t> CountSketch::heaviest(std::size_t d, std::size_t count) const {
  check_range("heaviest", 0, d);
  count = std::min(count, d);
  std::vector<std::uint32_t> indices = select(d, count, guess_threshold(d, count));
  if (indices.size() < count) indices = select(d, count, -1);  // the guess was too high
  return indices;
}

std::vector<std::uint32_t> CountSketch::heavymix(std::size_t d, std::size_t k, std::uint64_t rng_seed) const {
  check_range("heavymix", 0, d);
  k = std::min(k, d);
  if (k == 0) return {};
  const std::int32_t threshold = bits_below_root(l2_squared() / static_cast<double>(k));
  const std::vector<std::uint32_t> heavy = select(d, k, threshold);
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
