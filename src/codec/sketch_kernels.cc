// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch_kernels.h"

#include <slipstream/base/error.h>

#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/sketch_kernels.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace slipstream::sketch::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kBlock>;
using DBits = hn::RebindToUnsigned<D>;
using DInt = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = hn::MaxLanes(D());

// A block's line as vectors. The low bits of lane_xor permute the lanes of a vector, the high ones exchange the
// vectors of the line, which costs nothing: it changes their addresses.
struct Line {
  explicit HWY_INLINE Line(std::uint32_t place_word)
      : high_xor(place_word & (kBlock - kLanes)),
        word(hn::Set(DBits(), place_word)),
        low_xor(hn::Xor(hn::Iota(DBits(), 0), hn::And(word, hn::Set(DBits(), kLanes - 1)))) {}

  HWY_INLINE std::size_t cell(std::size_t lane) const { return lane ^ high_xor; }
  HWY_INLINE V permute(V v) const {
    return hn::TableLookupLanes(v, hn::IndicesFromVec(D(), hn::BitCast(DInt(), low_xor)));
  }
  HWY_INLINE V apply_signs(V v, std::size_t lane) const {
    const auto to_top = hn::Sub(hn::Set(DBits(), static_cast<std::uint32_t>(kBlock - 1 - lane)), hn::Iota(DBits(), 0));
    const auto negated = hn::And(hn::Shl(word, to_top), hn::Set(DBits(), 0x80000000U));
    return hn::Xor(v, hn::BitCast(D(), negated));
  }

  std::size_t high_xor;
  hn::Vec<DBits> word;
  hn::Vec<DBits> low_xor;
};

template <std::size_t kRows>
void AddRows(const Table<float>& table, std::size_t first_block, const float* values, std::size_t blocks) {
  const std::size_t lines = table.columns / kBlock;
  for (std::size_t block = 0; block < blocks; ++block, values += kBlock) {
    const std::uint64_t hash = hash_of_block(table.keys.seed, first_block + block);
    for (std::size_t row = 0; row < kRows; ++row) {
      const Place place = place_of(hash, table.keys.rows[row], lines);
      float* cells = table.cells + row * table.columns + place.line * kBlock;
      const Line line(place.word);
      for (std::size_t lane = 0; lane < kBlock; lane += kLanes) {
        const V addend = line.permute(line.apply_signs(hn::LoadU(D(), values + lane), lane));
        float* at = cells + line.cell(lane);
        hn::Store(hn::Add(hn::Load(D(), at), addend), D(), at);
      }
    }
  }
}

HWY_INLINE void order(V& a, V& b) {
  const V low = hn::Min(a, b);
  b = hn::Max(a, b);
  a = low;
}

// The median by forgetting: of any kRows/2 + 2 values the least and the greatest cannot be it, so drop both, take one
// new value, and go on until one is left. For 5 rows that is 10 minima and maxima.
template <std::size_t kRows>
HWY_INLINE V median(V* v) {
  if constexpr (kRows == 1) return v[0];
  std::size_t next = kRows / 2 + 2;
  for (std::size_t count = next;; --count) {
    for (std::size_t i = 0; i < count / 2; ++i) order(v[i], v[count - 1 - i]);
    for (std::size_t i = 1; i < (count + 1) / 2; ++i) order(v[0], v[i]);
    for (std::size_t i = count / 2; i + 1 < count; ++i) order(v[i], v[count - 1]);
    if (next == kRows) return v[1];
    v[0] = v[next++];
  }
}

template <std::size_t kRows>
void EstimateRows(const Table<const float>& table, std::size_t first_block, float* out, std::size_t blocks) {
  const std::size_t lines = table.columns / kBlock;
  for (std::size_t block = 0; block < blocks; ++block, out += kBlock) {
    const std::uint64_t hash = hash_of_block(table.keys.seed, first_block + block);
    V v[kBlock / kLanes][kRows];
    for (std::size_t row = 0; row < kRows; ++row) {
      const Place place = place_of(hash, table.keys.rows[row], lines);
      const float* cells = table.cells + row * table.columns + place.line * kBlock;
      const Line line(place.word);
      for (std::size_t lane = 0; lane < kBlock; lane += kLanes) {
        const V cell = hn::Load(D(), cells + line.cell(lane));
        v[lane / kLanes][row] = line.apply_signs(line.permute(cell), lane);
      }
    }
    for (std::size_t lane = 0; lane < kBlock; lane += kLanes) {
      // Which of two zeros is the lesser differs between processors; adding +0 makes both +0.
      hn::StoreU(hn::Add(median<kRows>(v[lane / kLanes]), hn::Zero(D())), D(), out + lane);
    }
  }
}

// The number of rows as a constant, so that the loops over rows unroll and a block's work overlaps.
#define SLIPSTREAM_FOR_ROWS(function, rows, ...)                                                    \
  switch (rows) {                                                                                   \
    case 1:                                                                                         \
      return function<1>(__VA_ARGS__);                                                              \
    case 3:                                                                                         \
      return function<3>(__VA_ARGS__);                                                              \
    case 5:                                                                                         \
      return function<5>(__VA_ARGS__);                                                              \
    case 7:                                                                                         \
      return function<7>(__VA_ARGS__);                                                              \
    case 9:                                                                                         \
      return function<9>(__VA_ARGS__);                                                              \
    case 11:                                                                                        \
      return function<11>(__VA_ARGS__);                                                             \
    case 13:                                                                                        \
      return function<13>(__VA_ARGS__);                                                             \
    case 15:                                                                                        \
      return function<15>(__VA_ARGS__);                                                             \
    default:                                                                                        \
      fail<Error>("sketch: {} rows, not odd and in 1…15; CountSketch lets no such shape in", rows); \
  }

void AddBlocks(const Table<float>& table, std::size_t first_block, const float* values, std::size_t blocks) {
  SLIPSTREAM_FOR_ROWS(AddRows, table.keys.rows.size(), table, first_block, values, blocks)
}

void EstimateBlocks(const Table<const float>& table, std::size_t first_block, float* out, std::size_t blocks){
    SLIPSTREAM_FOR_ROWS(EstimateRows, table.keys.rows.size(), table, first_block, out, blocks)}
#undef SLIPSTREAM_FOR_ROWS

std::size_t CollectAbove(const float* values, std::size_t count, std::uint32_t first_index, std::int32_t threshold,
                         std::uint64_t* ranks) {
  const DInt di;
  const auto magnitude = hn::Set(di, 0x7FFFFFFF);
  const auto limit = hn::Set(di, threshold);
  std::uint64_t* end = ranks;
  const auto look_at = [&](std::size_t i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU;
    *end = rank_of(bits, first_index + static_cast<std::uint32_t>(i));
    end += static_cast<std::int32_t>(bits) > threshold ? 1 : 0;
  };
  std::size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    auto largest = hn::Zero(di);
    for (std::size_t lane = 0; lane < kBlock; lane += kLanes) {
      largest = hn::Max(largest, hn::And(hn::BitCast(di, hn::LoadU(D(), values + i + lane)), magnitude));
    }
    if (hn::AllFalse(di, hn::Gt(largest, limit))) continue;  // nearly always, once the threshold has settled
    for (std::size_t lane = 0; lane < kBlock; ++lane) look_at(i + lane);
  }
  for (; i < count; ++i) look_at(i);
  return static_cast<std::size_t>(end - ranks);
}

}  // namespace slipstream::sketch::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::sketch {

HWY_EXPORT(AddBlocks);
HWY_EXPORT(EstimateBlocks);
HWY_EXPORT(CollectAbove);

void add_blocks(const Table<float>& table, std::size_t first_block, const float* values, std::size_t blocks) {
  HWY_DYNAMIC_DISPATCH(AddBlocks)(table, first_block, values, blocks);
}

void estimate_blocks(const Table<const float>& table, std::size_t first_block, float* out, std::size_t blocks) {
  HWY_DYNAMIC_DISPATCH(EstimateBlocks)(table, first_block, out, blocks);
}

std::size_t collect_above(std::span<const float> values, std::uint32_t first_index, std::int32_t threshold,
                          std::uint64_t* ranks) {
  return HWY_DYNAMIC_DISPATCH(CollectAbove)(values.data(), values.size(), first_index, threshold, ranks);
}

}  // namespace slipstream::sketch
#endif  // HWY_ONCE
