// SPDX-License-Identifier: Apache-2.0
//
// Rng: random numbers from a key. The n-th number is a hash (splitmix64) of the key and n, so a generator made from
// (seed, rank, step) gives the same numbers wherever and whenever it is made: nothing about randomness needs saving.
// A value type; not for cryptography.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace slipstream {

class Rng {
 public:
  using result_type = std::uint64_t;  // with min, max and (): usable with the standard library's algorithms

  explicit Rng(std::uint64_t seed, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0)
      : key_(mix((mix((mix(mix(seed + kGolden) ^ a) + kGolden) ^ b) + kGolden) ^ c)) {}

  std::uint64_t next() { return mix(key_ + kGolden * ++count_); }
  std::uint64_t operator()() { return next(); }
  static constexpr std::uint64_t min() { return 0; }
  static constexpr std::uint64_t max() { return std::numeric_limits<std::uint64_t>::max(); }

  // [0, 1), 53 bits of it.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }

  // 0 … n-1. The bias of taking the high word of a product is below n / 2^64.
  std::uint64_t below(std::uint64_t n) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * n) >> 64);
  }

  // Mean 0, deviation 1 (Box and Muller; the second number of the pair is dropped: keeping it would be more state).
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

 private:
  static constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

  std::uint64_t key_;
  std::uint64_t count_ = 0;
};

}  // namespace slipstream
