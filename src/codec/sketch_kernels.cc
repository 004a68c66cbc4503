// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch_kernels.h"

#include <slipstream/base/error.h>

#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/sketch_kernels.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>
// clang-format on

// Put before the loops over the rows and over the vectors of a block. Unrolled, all their vectors stay in registers;
// not unrolled, as compilers leave them at -O2, they go through memory and take twice the time. Not for the scalar
// target, whose vectors of one float are too many, nor under sanitizers, whose checks make unrolled loops take minutes
// to compile.
#undef SLIPSTREAM_UNROLL
#if HWY_TARGET == HWY_SCALAR || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLIPSTREAM_UNROLL
#else
#define SLIPSTREAM_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace slipstream::sketch::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kBlock>;
using DBits = hn::RebindToUnsigned<D>;
using DInt = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
using U = hn::Vec<DBits>;
constexpr std::size_t kLanes = hn::MaxLanes(D());
constexpr std::size_t kVectors = kBlock / kLanes;

constexpr std::size_t kChunk = 128;  // blocks hashed at a time …
constexpr std::size_t kAhead = 4;    // … the last of which are only prefetched

// From here to Places: hash_of_block and place_of for as many blocks as a vector has lanes.

template <int kShift>
HWY_INLINE U fold(U x) {
  return hn::Xor(x, hn::ShiftRight<kShift>(x));
}

HWY_INLINE U times(U x, std::uint32_t factor) { return hn::Mul(x, hn::Set(DBits(), factor)); }

HWY_INLINE U high_word_of_product(U x, std::uint32_t factor) {
#if HWY_TARGET == HWY_SCALAR  // has no wider lanes
  return hn::Set(DBits(), static_cast<std::uint32_t>(std::uint64_t{hn::GetLane(x)} * factor >> 32));
#else
  const hn::RepartitionToWide<DBits> wide;
  const U factors = hn::Set(DBits(), factor);
  const auto even = hn::ShiftRight<32>(hn::MulEven(x, factors));
  const auto odd = hn::MulEven(hn::BitCast(DBits(), hn::ShiftRight<32>(hn::BitCast(wide, x))), factors);
  return hn::OddEven(hn::BitCast(DBits(), odd), hn::BitCast(DBits(), even));
#endif
}

HWY_INLINE U hash_of_blocks(std::uint64_t seed_key, std::size_t first) {
  U x = hn::Xor(hn::Iota(DBits(), static_cast<std::uint32_t>(first)),
                hn::Set(DBits(), static_cast<std::uint32_t>(seed_key)));
  x = times(fold<16>(x), 0x85ebca6bU);
  x = times(fold<13>(x), 0xc2b2ae35U);
  return fold<16>(x);
}

// Where the blocks of a chunk lie. The low bits of lane_xor permute the lanes of a vector, the high ones exchange the
// vectors of the line, which costs nothing: it changes their addresses. Vector v of a block is at cell ^ (v * kLanes).
struct Places {
  HWY_NOINLINE HWY_ATTR Places(const Keys& keys, std::size_t lines, std::size_t first_block, std::size_t blocks) {
    for (std::size_t b = 0; b < blocks + kAhead; b += kLanes) {
      const U hash = hash_of_blocks(keys.seed, first_block + b);
      for (std::size_t row = 0; row < keys.rows.size(); ++row) find(hash, keys.rows[row], lines, row, b);
    }
  }

  HWY_INLINE void find(U hash, std::uint64_t key, std::size_t lines, std::size_t row, std::size_t b) {
    U x = hn::Xor(hash, hn::Set(DBits(), static_cast<std::uint32_t>(key)));
    x = times(x, static_cast<std::uint32_t>(key >> 32) | 1U);
    x = fold<16>(times(fold<15>(x), 0xc2b2ae35U));
    const U words = fold<16>(times(x, 0x9e3779b1U));
    const U high_xor = hn::And(words, hn::Set(DBits(), static_cast<std::uint32_t>(kBlock - kLanes)));
    const U line = high_word_of_product(x, static_cast<std::uint32_t>(lines));
    hn::Store(hn::Or(hn::ShiftLeft<4>(line), high_xor), DBits(), cell[row] + b);
    hn::Store(words, DBits(), word[row] + b);
  }

  alignas(64) std::uint32_t cell[kMaxRows][kChunk];
  alignas(64) std::uint32_t word[kMaxRows][kChunk];
};
static_assert(kBlock == 1U << 4, "the shift above");

HWY_INLINE V permute(V v, std::uint32_t place_word) {
  const auto low_xor = hn::And(hn::Set(DBits(), place_word), hn::Set(DBits(), kLanes - 1));
  const auto from = hn::BitCast(DInt(), hn::Xor(hn::Iota(DBits(), 0), low_xor));
  return hn::TableLookupLanes(v, hn::IndicesFromVec(D(), from));
}

// The signs of the lanes from `lane` on, each as the highest bit; the bits below mean nothing.
HWY_INLINE hn::Vec<DInt> signs(std::uint32_t place_word, std::size_t lane) {
  const auto to_top = hn::Sub(hn::Set(DBits(), static_cast<std::uint32_t>(kBlock - 1 - lane)), hn::Iota(DBits(), 0));
  return hn::BitCast(DInt(), hn::Shl(hn::Set(DBits(), place_word), to_top));
}

// The table by value: the compiler then knows that no store to a cell changes where the table lies.
template <std::size_t kRows>
HWY_INLINE void AddChunk(const Table<float> table, const Places& places, const float* values, std::size_t blocks) {
  for (std::size_t b = 0; b < blocks; ++b, values += kBlock) {
    hn::Vec<DInt> plain[kVectors], negated[kVectors];
    SLIPSTREAM_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) {
      const V value = hn::LoadU(D(), values + v * kLanes);
      plain[v] = hn::BitCast(DInt(), value);
      negated[v] = hn::BitCast(DInt(), hn::Neg(value));
    }
    SLIPSTREAM_UNROLL
    for (std::size_t row = 0; row < kRows; ++row) {
      float* const cells = table.cells + row * table.columns;
      hwy::Prefetch(cells + places.cell[row][b + kAhead]);
      const std::uint32_t word = places.word[row][b];
      SLIPSTREAM_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        const auto addend = hn::IfNegativeThenElse(signs(word, v * kLanes), negated[v], plain[v]);
        float* const at = cells + (places.cell[row][b] ^ (v * kLanes));
        hn::Store(hn::Add(hn::Load(D(), at), permute(hn::BitCast(D(), addend), word)), D(), at);
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
template <std::size_t kRows, std::size_t kCount = kRows / 2 + 2>
HWY_INLINE V median(V* v) {
  if constexpr (kRows == 1) return v[0];
  SLIPSTREAM_UNROLL
  for (std::size_t i = 0; i < kCount / 2; ++i) order(v[i], v[kCount - 1 - i]);
  SLIPSTREAM_UNROLL
  for (std::size_t i = 1; i < (kCount + 1) / 2; ++i) order(v[0], v[i]);
  SLIPSTREAM_UNROLL
  for (std::size_t i = kCount / 2; i + 1 < kCount; ++i) order(v[i], v[kCount - 1]);
  if constexpr (kCount <= 3) {
    return v[1];
  } else {
    v[0] = v[kRows + 3 - kCount];
    return median<kRows, kCount - 1>(v);
  }
}

// The least row if all rows are positive, the greatest if all are negative, else 0: at most one of the two terms is not
// 0.
template <std::size_t kRows>
HWY_INLINE V agreed_min(const V* v) {
  V least = v[0], greatest = v[0];
  SLIPSTREAM_UNROLL
  for (std::size_t row = 1; row < kRows; ++row) {
    least = hn::Min(least, v[row]);
    greatest = hn::Max(greatest, v[row]);
  }
  return hn::Add(hn::Max(least, hn::Zero(D())), hn::Min(greatest, hn::Zero(D())));
}

template <std::size_t kRows, Estimate kRule>
HWY_INLINE void EstimateChunk(const Table<const float> table, const Places& places, float* out, std::size_t blocks) {
  for (std::size_t b = 0; b < blocks; ++b, out += kBlock) {
    SLIPSTREAM_UNROLL
    for (std::size_t row = 0; row < kRows; ++row) {
      hwy::Prefetch(table.cells + row * table.columns + places.cell[row][b + kAhead]);
    }
    SLIPSTREAM_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) {
      V estimates[kRows];
      SLIPSTREAM_UNROLL
      for (std::size_t row = 0; row < kRows; ++row) {
        const std::uint32_t word = places.word[row][b];
        const float* at = table.cells + row * table.columns + (places.cell[row][b] ^ (v * kLanes));
        const V sign = hn::And(hn::BitCast(D(), signs(word, v * kLanes)), hn::Set(D(), -0.0F));
        estimates[row] = hn::Xor(permute(hn::Load(D(), at), word), sign);
      }
      // Which of two zeros is the lesser differs between processors; adding +0 makes both +0.
      V estimate;
      if constexpr (kRule == Estimate::kMin) {
        estimate = agreed_min<kRows>(estimates);
      } else {
        estimate = median<kRows>(estimates);
      }
      hn::StoreU(hn::Add(estimate, hn::Zero(D())), D(), out + v * kLanes);
    }
  }
}

// do_chunk(places, done, count) handles `count` blocks of which `done` lie before them.
template <typename Float, typename DoChunk>
HWY_INLINE void each_chunk(const Table<Float>& table, std::size_t first_block, std::size_t blocks,
                           const DoChunk& do_chunk) {
  for (std::size_t done = 0; done < blocks; done += kChunk - kAhead) {
    const std::size_t count = HWY_MIN(blocks - done, kChunk - kAhead);
    const Places places(table.keys, table.columns / kBlock, first_block + done, count);
    do_chunk(places, done, count);
  }
}

template <std::size_t kRows>
void AddRows(const Table<float>& table, std::size_t first_block, const float* values, std::size_t blocks) {
  each_chunk(table, first_block, blocks, [&](const Places& places, std::size_t done, std::size_t count) HWY_ATTR {
    AddChunk<kRows>(table, places, values + done * kBlock, count);
  });
}

template <std::size_t kRows>
void EstimateRows(const Table<const float>& table, Estimate rule, std::size_t first_block, float* out,
                  std::size_t blocks) {
  each_chunk(table, first_block, blocks, [&](const Places& places, std::size_t done, std::size_t count) HWY_ATTR {
    if (rule == Estimate::kMin) {
      EstimateChunk<kRows, Estimate::kMin>(table, places, out + done * kBlock, count);
    } else {
      EstimateChunk<kRows, Estimate::kMedian>(table, places, out + done * kBlock, count);
    }
  });
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

void EstimateBlocks(const Table<const float>& table, Estimate rule, std::size_t first_block, float* out,
                    std::size_t blocks) {
  SLIPSTREAM_FOR_ROWS(EstimateRows, table.keys.rows.size(), table, rule, first_block, out, blocks)
}
#undef SLIPSTREAM_FOR_ROWS

}  // namespace slipstream::sketch::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::sketch {

HWY_EXPORT(AddBlocks);
HWY_EXPORT(EstimateBlocks);

void add_blocks(const Table<float>& table, std::size_t first_block, const float* values, std::size_t blocks) {
  HWY_DYNAMIC_DISPATCH(AddBlocks)(table, first_block, values, blocks);
}

void estimate_blocks(const Table<const float>& table, Estimate rule, std::size_t first_block, float* out,
                     std::size_t blocks) {
  HWY_DYNAMIC_DISPATCH(EstimateBlocks)(table, rule, first_block, out, blocks);
}

}  // namespace slipstream::sketch
#endif  // HWY_ONCE
