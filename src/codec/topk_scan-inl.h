// SPDX-License-Identifier: Apache-2.0
//
// The one pass of TopK, compiled once per target of topk.cc. Highway's vectors; multiply, then add, never fused.

// A toggle instead of #pragma once: foreach_target.h includes this file once for every target.
#if defined(SLIPSTREAM_CODEC_TOPK_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPSTREAM_CODEC_TOPK_SCAN_INL_H_
#undef SLIPSTREAM_CODEC_TOPK_SCAN_INL_H_
#else
#define SLIPSTREAM_CODEC_TOPK_SCAN_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/topk.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Bit j of the result: whether lane j of the mask is set. (Highway's CompressStore would do more at once, but with GCC
// its version 1.0 copies a table of 1 KiB to the stack at every call.)
template <typename D, typename Mask>
HWY_INLINE std::uint64_t bits_of(D d, Mask mask) {
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

// load(d, i) returns the values from i on as a vector, load(i) one of them; in a pass that adds, both also store the
// sum. load.at(i) is the value at i afterwards. In the list, value i has index `first` + i.
template <typename Load>
HWY_INLINE std::size_t scan(const Load& load, std::size_t begin, std::size_t end, std::size_t first, Candidates& list) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t block = 4 * lanes;
  const auto magnitude = hn::Set(di, 0x7FFFFFFF);
  const auto floor = hn::Set(di, list.floor);
  const auto above = [=](auto x) HWY_ATTR { return hn::Gt(hn::And(hn::BitCast(di, x), magnitude), floor); };
  std::uint32_t* const indices = list.indices.data();
  float* const values = list.values.data();
  std::size_t count = list.count;

  std::size_t i = begin;
  for (; i + block <= end && count + block <= list.capacity; i += block) {
    const auto above0 = above(load(d, i));
    const auto above1 = above(load(d, i + lanes));
    const auto above2 = above(load(d, i + 2 * lanes));
    const auto above3 = above(load(d, i + 3 * lanes));
    if (HWY_LIKELY(hn::AllFalse(di, hn::Or(hn::Or(above0, above1), hn::Or(above2, above3))))) continue;
    std::uint64_t hits = bits_of(di, above0) | bits_of(di, above1) << lanes | bits_of(di, above2) << 2 * lanes |
                         bits_of(di, above3) << 3 * lanes;
    for (; hits != 0; hits &= hits - 1) {
      const std::size_t hit = i + static_cast<std::size_t>(std::countr_zero(hits));
      indices[count] = static_cast<std::uint32_t>(first + hit);
      values[count] = load.at(hit);
      ++count;
    }
  }
  for (; i + block > end && i < end && count < list.capacity; ++i) {
    const float x = load(i);
    if ((std::bit_cast<std::int32_t>(x) & 0x7FFFFFFF) <= list.floor) continue;
    indices[count] = static_cast<std::uint32_t>(first + i);
    values[count] = x;
    ++count;
  }
  list.count = count;
  return i;
}

struct Read {
  const float* x;

  template <typename D>
  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i) const {
    return hn::LoadU(d, x + i);
  }
  HWY_INLINE float operator()(std::size_t i) const { return x[i]; }
  HWY_INLINE float at(std::size_t i) const { return x[i]; }
};

struct AddAndRead {
  float* y;
  const float* x;
  float a;

  template <typename D>
  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i) const {
    const auto sum = hn::Add(hn::LoadU(d, y + i), hn::Mul(hn::Set(d, a), hn::LoadU(d, x + i)));
    hn::StoreU(sum, d, y + i);
    return sum;
  }
  HWY_INLINE float operator()(std::size_t i) const { return y[i] = y[i] + a * x[i]; }
  HWY_INLINE float at(std::size_t i) const { return y[i]; }
};

std::size_t Scan(const float* x, std::size_t begin, std::size_t end, std::size_t first, Candidates& list) {
  return scan(Read{x}, begin, end, first, list);
}

std::size_t AddAndScan(float* y, const float* x, float a, std::size_t begin, std::size_t end, Candidates& list) {
  return scan(AddAndRead{y, x, a}, begin, end, 0, list);
}

}  // namespace slipstream::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
