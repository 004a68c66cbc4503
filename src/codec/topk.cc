// SPDX-License-Identifier: Apache-2.0
#include "codec/topk.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/rng.h"
#include "base/vec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/topk.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "codec/topk_scan-inl.h"
// clang-format on

#if HWY_ONCE
namespace slipstream {

HWY_EXPORT(Scan);
HWY_EXPORT(AddAndScan);

namespace {

constexpr std::size_t kLine = 16;               // floats of a cache line: the unit of sampling
constexpr std::size_t kSampledShare = 64;       // one line of 64 is looked at …
constexpr std::size_t kMaxLines = 1024;         // … but no more than these
constexpr std::size_t kMinLines = 64;           // with fewer lines the pass finds a threshold sooner than a sample does
constexpr std::size_t kSpareEntries = 4096;     // room beside 3 k candidates, more than any block of the pass
constexpr std::size_t kStretch = 4096;          // values made at a time: they stay in the first-level cache
constexpr std::uint64_t kMaxSize = 1ULL << 32;  // indices have 32 bits

std::int32_t magnitude_bits(float x) { return std::bit_cast<std::int32_t>(x) & 0x7FFFFFFF; }

// The value at `rank` (0: the largest) when `of` is sorted downwards; reorders and overwrites `of`. A histogram finds
// the small range that the value lies in, and this range is then gathered at the front: two passes without
// unpredictable branches, several times as fast as nth_element on the whole.
std::int32_t of_rank(std::span<std::int32_t> of, std::size_t rank) {
  constexpr int kBucketBits = 11;
  if (of.size() > 1U << kBucketBits) {
    const auto [least, most] = std::minmax_element(of.begin(), of.end());
    const auto low = *least;
    const int width = std::bit_width(static_cast<std::uint32_t>(*most - low));
    const int shift = std::max(width - kBucketBits, 0);
    const auto bucket_of = [=](std::int32_t x) { return static_cast<std::size_t>((x - low) >> shift); };
    std::array<std::size_t, 1U << kBucketBits> counts{};
    for (const std::int32_t x : of) ++counts[bucket_of(x)];
    std::size_t bucket = counts.size() - 1;
    for (; counts[bucket] <= rank; --bucket) rank -= counts[bucket];
    std::size_t kept = 0;
    for (const std::int32_t x : of) {
      of[kept] = x;
      kept += static_cast<std::size_t>(bucket_of(x) == bucket);
    }
    of = of.first(kept);
  }
  const auto at = of.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(of.begin(), at, of.end(), std::greater<>());
  return *at;
}

void check_sizes(const char* operation, std::size_t size, std::size_t k) {
  check(size <= kMaxSize, "TopK::{}: {} elements, but an index has 32 bits; split the bucket", operation, size);
  check(k <= size, "TopK::{}: k is {}, but there are only {} elements; clamp k to the size of the bucket", operation, k,
        size);
}

}  // namespace

// A threshold that a little more than k values are expected to exceed, so that a sample seldom leaves too few. From
// each of equally long stretches one line at a random place is sampled: no period of the data can hide from that.
// write(first, line) is as in pick().
template <typename WriteLine>
std::int32_t TopK::sampled_floor(std::size_t size, std::size_t k, const WriteLine& write) {
  const std::size_t lines = std::min(size / kLine / kSampledShare, kMaxLines);
  if (lines < kMinLines) return -1;
  const double expected = static_cast<double>(k) * static_cast<double>(lines * kLine) / static_cast<double>(size);
  const auto rank = static_cast<std::size_t>(1.25 * expected + 4.0 * std::sqrt(expected) + 1.0);
  if (rank >= lines * kLine) return -1;

  magnitudes_.resize(lines * kLine);
  const std::size_t stretch = size / lines;
  Rng rng(size);
  for (std::size_t line = 0; line < lines; ++line) {
    const std::size_t begin = line * stretch + rng.below(stretch - kLine + 1);
    std::array<float, kLine> values;
    write(begin - begin % kLine, std::span(values));
    std::transform(values.begin(), values.end(), magnitudes_.begin() + static_cast<std::ptrdiff_t>(line * kLine),
                   magnitude_bits);
  }
  return of_rank(magnitudes_, rank) - 1;  // equal ones are candidates too
}

// pass(begin) goes on from `begin` and returns where it stopped: at the end, or where the list was full.
template <typename Pass>
void TopK::scan(std::size_t size, std::size_t k, const Pass& pass) {
  list_.capacity = std::min(size, 3 * k) + kSpareEntries;
  if (list_.indices.size() < list_.capacity) {
    list_.indices.resize(list_.capacity);
    list_.values.resize(list_.capacity);
  }
  list_.count = 0;
  for (std::size_t done = pass(0); done < size; done = pass(done)) keep_largest(k);
}

// Cuts the list back to its k largest; their order stays. Later entries have higher indices, so one of equal magnitude
// can no longer be chosen.
void TopK::keep_largest(std::size_t k) {
  if (list_.count <= k) return;
  const auto values = std::span(list_.values).first(list_.count);
  magnitudes_.resize(list_.count);
  std::transform(values.begin(), values.end(), magnitudes_.begin(), magnitude_bits);
  const std::int32_t smallest = of_rank(magnitudes_, k - 1);
  const auto larger =
      std::count_if(values.begin(), values.end(), [=](float x) { return magnitude_bits(x) > smallest; });
  std::size_t ties = k - static_cast<std::size_t>(larger);

  std::size_t kept = 0;
  for (std::size_t j = 0; j < list_.count; ++j) {  // without branches: which entries stay cannot be predicted
    const std::int32_t magnitude = magnitude_bits(list_.values[j]);
    const bool tie = magnitude == smallest && ties > 0;
    list_.indices[kept] = list_.indices[j];
    list_.values[kept] = list_.values[j];
    ties -= static_cast<std::size_t>(tie);
    kept += static_cast<std::size_t>(magnitude > smallest || tie);
  }
  list_.count = kept;
  list_.floor = smallest;
}

// The k largest of the candidates; where the sampled threshold left fewer than k, of all values.
template <typename Pass>
void TopK::move_out(std::size_t size, std::size_t k, const Pass& read, Sparse& out) {
  if (list_.count < k) {
    list_.floor = -1;
    scan(size, k, read);
  }
  keep_largest(k);
  out.indices.assign(list_.indices.begin(), list_.indices.begin() + static_cast<std::ptrdiff_t>(k));
  out.values.assign(list_.values.begin(), list_.values.begin() + static_cast<std::ptrdiff_t>(k));
}

void TopK::accumulate_and_take(std::span<float> residual, std::span<const float> grad, float scale, std::size_t k,
                               Sparse& out) {
  check(residual.size() == grad.size(), "TopK::accumulate_and_take: a residual of {} and a gradient of {} elements",
        residual.size(), grad.size());
  check_sizes("accumulate_and_take", residual.size(), k);
  out.indices.clear();
  out.values.clear();
  if (k == 0) return vec::add_scaled(residual, grad, scale);
  list_.floor = sampled_floor(residual.size(), k, [=](std::size_t first, std::span<float> line) {
    for (std::size_t j = 0; j < line.size(); ++j) line[j] = residual[first + j] + scale * grad[first + j];
  });
  scan(residual.size(), k, [&](std::size_t begin) {
    return HWY_DYNAMIC_DISPATCH(AddAndScan)(residual.data(), grad.data(), scale, begin, residual.size(), list_);
  });
  move_out(
      residual.size(), k,
      [&](std::size_t begin) { return HWY_DYNAMIC_DISPATCH(Scan)(residual.data(), begin, residual.size(), 0, list_); },
      out);
  for (const std::uint32_t index : out.indices) residual[index] = 0.0F;
}

void TopK::take(std::span<float> values, std::size_t k, Sparse& out) {
  pick(values, k, out);
  for (const std::uint32_t index : out.indices) values[index] = 0.0F;
}

void TopK::pick(std::span<const float> values, std::size_t k, Sparse& out) {
  check_sizes("pick", values.size(), k);
  out.indices.clear();
  out.values.clear();
  if (k == 0) return;
  list_.floor = sampled_floor(values.size(), k, [=](std::size_t first, std::span<float> line) {
    vec::copy(line, values.subspan(first, line.size()));
  });
  const auto read = [&](std::size_t begin) {
    return HWY_DYNAMIC_DISPATCH(Scan)(values.data(), begin, values.size(), 0, list_);
  };
  scan(values.size(), k, read);
  move_out(values.size(), k, read, out);
}

void TopK::pick(std::size_t size, std::size_t k,
                const std::function<void(std::size_t first, std::span<float> out)>& write, Sparse& out) {
  check_sizes("pick", size, k);
  out.indices.clear();
  out.values.clear();
  if (k == 0) return;
  list_.floor = sampled_floor(size, k, write);
  std::array<float, kStretch> made;
  const auto read = [&](std::size_t begin) {
    for (std::size_t first = begin - begin % kStretch; first < size; first += kStretch) {
      const auto stretch = std::span(made).first(std::min(kStretch, size - first));
      write(first, stretch);
      const std::size_t done =
          HWY_DYNAMIC_DISPATCH(Scan)(stretch.data(), std::max(begin, first) - first, stretch.size(), first, list_);
      if (done < stretch.size()) return first + done;
    }
    return size;
  };
  scan(size, k, read);
  move_out(size, k, read, out);
}

Sparse topk_reference(std::span<const float> values, std::size_t k) {
  check_sizes("topk_reference", values.size(), k);
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return magnitude_bits(values[a]) > magnitude_bits(values[b]);
  });
  order.resize(k);
  std::sort(order.begin(), order.end());
  Sparse out;
  out.indices = order;
  for (const std::uint32_t index : order) out.values.push_back(values[index]);
  return out;
}

}  // namespace slipstream
#endif  // HWY_ONCE
