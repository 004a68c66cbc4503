// SPDX-License-Identifier: Apache-2.0
//
// 16-bit floats against rounding worked out in double, around every value the formats have.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/every_target.h"
#include "base/half_bits.h"
#include "base/vec.h"

namespace slipstream {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// x rounded to `digits` significant bits with exponents from `lowest` on; ties to even; `limit` and more is infinite.
double rounded(double x, int digits, int lowest, double limit) {
  if (x == 0.0 || !std::isfinite(x)) return x;
  const double spacing = std::ldexp(1.0, std::max(std::ilogb(x), lowest) - digits + 1);
  const double result = std::nearbyint(x / spacing) * spacing;
  return std::abs(result) >= limit ? std::copysign(std::numeric_limits<double>::infinity(), x) : result;
}
double rounded_fp16(double x) { return rounded(x, 11, -14, 0x1p16); }
double rounded_bf16(double x) { return rounded(x, 8, -126, 0x1p128); }

// Every value of the format, the midpoints to their neighbours, and the floats next to all of these.
std::vector<float> probes(float (*value)(std::uint16_t)) {
  std::vector<float> result;
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float at = value(static_cast<std::uint16_t>(bits));
    const float next = value(static_cast<std::uint16_t>(bits + 1));
    if (!std::isfinite(at)) continue;
    const auto middle = static_cast<float>(0.5 * (static_cast<double>(at) + static_cast<double>(next)));
    for (const float probe : {at, middle}) {
      if (!std::isfinite(probe)) continue;
      result.push_back(std::nextafter(probe, -kInf));
      result.push_back(probe);
      result.push_back(std::nextafter(probe, kInf));
    }
  }
  for (const float large : {65504.0F, 65519.996F, 65520.0F, 65536.0F, 3.39e38F, 3.4028235e38F, kInf}) {
    result.push_back(large);
    result.push_back(-large);
  }
  return result;
}

TEST(VecHalf, RoundsFp16ToNearestEven) {
  const std::vector<float> x = probes(fp16_value);
  ASSERT_GT(x.size(), 6 * 63000U);
  std::vector<std::uint16_t> halves(x.size());
  std::vector<float> back(x.size());
  on_every_target([&] {
    vec::to_fp16(halves, x);
    vec::from_fp16(back, halves);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(static_cast<double>(back[i]), rounded_fp16(x[i])) << x[i];
      ASSERT_EQ(std::signbit(back[i]), std::signbit(x[i])) << x[i];
    }
  });
}

TEST(VecHalf, RoundsBf16ToNearestEven) {
  const std::vector<float> x = probes(bf16_value);
  std::vector<std::uint16_t> halves(x.size());
  std::vector<float> back(x.size());
  on_every_target([&] {
    vec::to_bf16(halves, x);
    vec::from_bf16(back, halves);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(static_cast<double>(back[i]), rounded_bf16(x[i])) << x[i];
      ASSERT_EQ(std::signbit(back[i]), std::signbit(x[i])) << x[i];
    }
  });
}

TEST(VecHalf, VectorsEqualTheScalarDefinitionBitForBitAlsoForNans) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < 1ULL << 32; bits += 4099) {  // a prime stride: all exponents, all low bits
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (std::uint32_t low = 0; low < 23; ++low) x.push_back(std::bit_cast<float>(0xFF800000U | 1U << low));
  std::vector<std::uint16_t> halves(x.size());
  on_every_target([&] {
    vec::to_fp16(halves, x);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(halves[i], fp16_bits(x[i])) << x[i];
    vec::to_bf16(halves, x);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(halves[i], bf16_bits(x[i])) << x[i];
  });
}

TEST(VecHalf, DecodesEveryPatternAsTheScalarDefinitionDoes) {
  std::vector<std::uint16_t> all(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> got(all.size());
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  on_every_target([&] {
    vec::from_fp16(got, all);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(bits(got[i]), bits(fp16_value(all[i]))) << i;
    vec::from_bf16(got, all);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(bits(got[i]), bits(bf16_value(all[i]))) << i;
  });
}

TEST(VecHalf, ANanStaysANan) {
  for (const std::uint32_t bits : {0x7F800001U, 0xFF800001U, 0x7FC00000U, 0xFFFFFFFFU}) {
    EXPECT_TRUE(std::isnan(fp16_value(fp16_bits(std::bit_cast<float>(bits)))));
    EXPECT_TRUE(std::isnan(bf16_value(bf16_bits(std::bit_cast<float>(bits)))));
  }
}

TEST(VecHalf, EverySizeAndOffsetAddsTheScaledValueAndNothingElse) {
  on_every_target([&] {
    for (std::size_t count = 0; count <= 67; ++count) {
      for (std::size_t offset = 0; offset < 4; ++offset) {
        std::vector<std::uint16_t> x(count + 8);
        std::vector<float> y(count + 8, 0.1F), z(count + 8, 0.1F);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(0x3C00 + 37 * i);
        const auto cut = [&](auto& all) { return std::span(all).subspan(offset, count); };
        vec::add_scaled_fp16(cut(y), cut(x), 0.3F);
        vec::add_scaled_bf16(cut(z), cut(x), 0.3F);
        for (std::size_t i = 0; i < count + 8; ++i) {
          const bool inside = i >= offset && i < offset + count;
          ASSERT_EQ(y[i], inside ? 0.1F + 0.3F * fp16_value(x[i]) : 0.1F);
          ASSERT_EQ(z[i], inside ? 0.1F + 0.3F * bf16_value(x[i]) : 0.1F);
        }
      }
    }
  });
}

}  // namespace
}  // namespace slipstream
