// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of CountSketch, and the one definition of where a coordinate lies in the table.
//
// Coordinates are hashed in blocks of 16 neighbours: a block goes to one line of 16 cells per row (a cache line), its
// lanes permuted by an exclusive or with 4 random bits, each coordinate with a random sign of its own. A block's number
// is mixed to 32 bits once, one to one; for each row those meet the halves of the row's random key and are mixed again,
// to a number that chooses the line and, mixed once more, to a word that holds
//
//   bits 31…16     signs: bit 16 + l set means coordinate lane l is stored negated
//   bits 3…0       lane_xor: coordinate lane l lies in cell l ^ lane_xor of the line
//
// All of it is arithmetic on 32 bits, so that a vector holds the hashes of as many blocks as it has lanes. The line is
// the high word of a product, so the probabilities of two lines differ by less than a factor 1 + lines / 2^32.
//
// The kernels work on whole blocks, with the widest vectors the processor has, chosen at run time. A cell receives at
// most one addend per block, in the order of the blocks, and there is no fused multiply-add: the bits do not depend on
// the vector width. They check nothing; CountSketch does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace slipstream::sketch {

inline constexpr std::size_t kBlock = 16;
inline constexpr int kMaxRows = 15;

// Streams of random numbers (the second argument of Rng): hash keys and a random fill made from one seed do not share
// their draws.
inline constexpr std::uint64_t kKeyStream = 1, kFillStream = 2;

// How the rows' estimates of a coordinate become one.
enum class Estimate {
  kMedian,  // unbiased
  kMin,  // 0 unless all rows agree in sign, else the smallest magnitude: never larger than the coordinate by more than
         // the least of the rows' errors, so what is not there rarely looks large. For finding, not for applying
};

struct Place {
  std::uint32_t line;
  std::uint32_t word;  // signs and lane_xor

  std::size_t cell(std::size_t lane) const { return std::size_t{line} * kBlock + (lane ^ (word & (kBlock - 1))); }
  bool negated(std::size_t lane) const { return (word >> (kBlock + lane) & 1U) != 0; }
};

struct Keys {
  std::uint64_t seed = 0;
  std::span<const std::uint64_t> rows;
};

inline std::uint32_t hash_of_block(std::uint64_t seed_key, std::size_t block) {
  auto x = static_cast<std::uint32_t>(seed_key) ^ static_cast<std::uint32_t>(block);
  x = (x ^ (x >> 16)) * 0x85ebca6bU;
  x = (x ^ (x >> 13)) * 0xc2b2ae35U;
  return x ^ (x >> 16);
}

inline Place place_of(std::uint32_t block_hash, std::uint64_t row_key, std::size_t lines) {
  const auto low = static_cast<std::uint32_t>(row_key), high = static_cast<std::uint32_t>(row_key >> 32);
  std::uint32_t x = (block_hash ^ low) * (high | 1U);  // odd: different blocks stay different
  x = (x ^ (x >> 15)) * 0xc2b2ae35U;
  x ^= x >> 16;
  std::uint32_t word = x * 0x9e3779b1U;
  word ^= word >> 16;
  return {static_cast<std::uint32_t>(std::uint64_t{x} * static_cast<std::uint32_t>(lines) >> 32), word};
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

// out = the median over the rows (an odd number) or their min, never -0. All cells must be finite.
void estimate_blocks(const Table<const float>& table, Estimate rule, std::size_t first_block, float* out,
                     std::size_t blocks);

}  // namespace slipstream::sketch
