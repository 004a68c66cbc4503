// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of CountSketch, and the one definition of where a coordinate lies in the table.
//
// Coordinates are hashed in blocks of 16 neighbours: a block goes to one line of 16 cells per row (a cache line), its
// lanes permuted by an exclusive or with 4 random bits, each coordinate with a random sign of its own. A block is mixed
// to 64 bits once (splitmix64), then for each row multiplied by the row's random odd key and folded; the 64 bits hold
//
//   line           by the high word of their product with the number of lines, that is from the top bits
//   bits 31…16     signs: bit 16 + l set means coordinate lane l is stored negated
//   bits 3…0       lane_xor: coordinate lane l lies in cell l ^ lane_xor of the line
//
// The kernels work on whole blocks, with the widest vectors the processor has, chosen at run time. A cell receives at
// most one addend per block, in the order of the blocks, and there is no fused multiply-add: the bits do not depend on
// the vector width. They check nothing; CountSketch does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/rng.h"

namespace slipstream::sketch {

inline constexpr std::size_t kBlock = 16;
inline constexpr int kMaxRows = 15;

struct Place {
  std::size_t line;
  std::uint32_t word;  // the low bits: signs and lane_xor

  std::size_t cell(std::size_t lane) const { return line * kBlock + (lane ^ (word & (kBlock - 1))); }
  bool negated(std::size_t lane) const { return (word >> (kBlock + lane) & 1U) != 0; }
};

struct Keys {
  std::uint64_t seed = 0;
  std::span<const std::uint64_t> rows;  // odd
};

inline std::uint64_t hash_of_block(std::uint64_t seed_key, std::uint64_t block) {
  return Rng::mix(seed_key + block * 0x9e3779b97f4a7c15ULL);
}

inline Place place_of(std::uint64_t block_hash, std::uint64_t row_key, std::uint64_t lines) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(block_hash) * row_key;
  const std::uint64_t hash = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  return {static_cast<std::size_t>((static_cast<Wide>(hash) * lines) >> 64), static_cast<std::uint32_t>(hash)};
}

// rows × columns cells, row after row; the first on a 64-byte boundary, columns a multiple of kBlock.
template <typename Float>
struct Table {
  Float* cells;
  std::size_t columns;
  Keys keys;
};

// Adds `blocks` whole blocks, the first of them block number `first_block`.
void add_blocks(const Table<float>& table, std::size_t first_block, const float* values, std::size_t blocks);

// out = the median over the rows (an odd number), never -0. All cells must be finite.
void estimate_blocks(const Table<const float>& table, std::size_t first_block, float* out, std::size_t blocks);

// The order in which coordinates are heavier: by magnitude (as its bits), then the lower index first.
inline std::uint64_t rank_of(std::uint32_t magnitude_bits, std::uint32_t index) {
  return (std::uint64_t{magnitude_bits} << 32) | static_cast<std::uint32_t>(~index);
}
inline std::uint32_t index_of(std::uint64_t rank) { return ~static_cast<std::uint32_t>(rank); }

// Writes rank_of() of every value whose magnitude bits are above `threshold` (-1: of all) to `ranks`, which has room
// for all of them; value i has index first_index + i. Returns how many.
std::size_t collect_above(std::span<const float> values, std::uint32_t first_index, std::int32_t threshold,
                          std::uint64_t* ranks);

}  // namespace slipstream::sketch
