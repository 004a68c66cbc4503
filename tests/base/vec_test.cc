// SPDX-License-Identifier: Apache-2.0
//
// Every kernel against a scalar loop, bit for bit, on every instruction set this processor has.
#include "base/vec.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/every_target.h"

namespace slipstream {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::array kSpecial = {0.0F, -0.0F, kInf, -kInf, kNan, 1e-42F, -1e-42F, 3.4e38F, -3.4e38F, 1.17549435e-38F};

std::vector<float> random_values(std::size_t count, std::uint32_t seed, bool special) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(static_cast<std::int32_t>(random())) *
            std::ldexp(1.0F, -31 + static_cast<int>(random() % 9));
    if (special && random() % 8 == 0) value = kSpecial[random() % kSpecial.size()];
  }
  return values;
}

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

struct Spans {  // y, v and u may be written
  std::span<float> y, v, u;
  std::span<const float> x;
};

// `kernel` on whole spans must do what `scalar` does element by element, and touch nothing outside.
template <typename Kernel, typename Scalar>
void expect_equals_scalar(const Kernel& kernel, const Scalar& scalar) {
  on_every_target([&] {
    for (std::size_t count = 0; count <= 67; ++count) {
      for (std::size_t offset = 0; offset < 4; ++offset) {
        std::array<std::vector<float>, 4> got;
        for (std::uint32_t k = 0; k < 4; ++k) {
          got[k] = random_values(count + 8, static_cast<std::uint32_t>(count * 16 + offset * 4 + k), true);
        }
        auto want = got;
        const auto spans = [&](auto& of) {
          const auto cut = [&](std::vector<float>& all) { return std::span<float>(all).subspan(offset, count); };
          return Spans{cut(of[0]), cut(of[1]), cut(of[2]), cut(of[3])};
        };
        kernel(spans(got));
        for (std::size_t i = 0; i < count; ++i) scalar(spans(want), i);
        for (std::size_t k = 0; k < 4; ++k) {
          for (std::size_t i = 0; i < count + 8; ++i) {
            ASSERT_TRUE(same(got[k][i], want[k][i]))
                << got[k][i] << " is not " << want[k][i] << ", array " << k << " element " << i << " of " << count;
          }
        }
      }
    }
  });
}

TEST(Vec, FillsZeroesAndCopies) {
  expect_equals_scalar([](Spans s) { vec::fill(s.y, 2.5F); }, [](Spans s, std::size_t i) { s.y[i] = 2.5F; });
  expect_equals_scalar([](Spans s) { vec::zero(s.y); }, [](Spans s, std::size_t i) { s.y[i] = 0.0F; });
  expect_equals_scalar([](Spans s) { vec::copy(s.y, s.x); }, [](Spans s, std::size_t i) { s.y[i] = s.x[i]; });
}

TEST(Vec, ScalesAddsAndSubtractsAsAScalarLoopDoes) {
  expect_equals_scalar([](Spans s) { vec::scale(s.y, 0.3F); }, [](Spans s, std::size_t i) { s.y[i] = 0.3F * s.y[i]; });
  expect_equals_scalar([](Spans s) { vec::add(s.y, s.x); }, [](Spans s, std::size_t i) { s.y[i] = s.y[i] + s.x[i]; });
  expect_equals_scalar([](Spans s) { vec::add_scaled(s.y, s.x, -0.7F); },
                       [](Spans s, std::size_t i) { s.y[i] = s.y[i] + -0.7F * s.x[i]; });
  expect_equals_scalar([](Spans s) { vec::lerp(s.y, s.x, 0.3F); },
                       [](Spans s, std::size_t i) { s.y[i] = 0.3F * s.y[i] + (1.0F - 0.3F) * s.x[i]; });
  expect_equals_scalar([](Spans s) { vec::subtract(s.u, s.y, s.x); },
                       [](Spans s, std::size_t i) { s.u[i] = s.y[i] - s.x[i]; });
}

TEST(Vec, SnapshotsAndMergesAsAScalarLoopDoes) {
  expect_equals_scalar([](Spans s) { vec::copy_twice(s.y, s.v, s.x); },
                       [](Spans s, std::size_t i) { s.y[i] = s.v[i] = s.x[i]; });
  expect_equals_scalar([](Spans s) { vec::mix(s.y, 0.3F, s.x, 0.1F); },
                       [](Spans s, std::size_t i) { s.y[i] = 0.3F * s.y[i] + 0.1F * s.x[i]; });
  expect_equals_scalar([](Spans s) { vec::rebase(s.y, s.v, s.x, 0.3F); },
                       [](Spans s, std::size_t i) { s.y[i] = (s.y[i] - s.v[i]) + 0.3F * s.x[i]; });
}

TEST(Vec, WritesInPlaceWhereTheOutputIsAnInput) {
  expect_equals_scalar([](Spans s) { vec::subtract(s.y, s.y, s.x); },
                       [](Spans s, std::size_t i) { s.y[i] = s.y[i] - s.x[i]; });
  expect_equals_scalar([](Spans s) { vec::add(s.y, s.y); }, [](Spans s, std::size_t i) { s.y[i] = s.y[i] + s.y[i]; });
}

TEST(Vec, NeverFusesMultiplyAndAdd) {
  const float a = 1.0F + 0x1p-12F;  // a * a = 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11; fused, the 2^-24 would survive
  on_every_target([&] {
    const std::vector<float> x(67, a);
    std::vector<float> y(67, -(1.0F + 0x1p-11F));
    vec::add_scaled(y, x, a);
    EXPECT_EQ(y, std::vector<float>(67, 0.0F));

    std::vector<float> w(67, 1.0F + 0x1p-11F);
    vec::sgd_step(w, x, {}, {.lr = a});
    EXPECT_EQ(w, std::vector<float>(67, 0.0F));
  });
}

TEST(Vec, SgdStepsAsAScalarLoopDoes) {
  const auto decayed = [](Spans s, std::size_t i) { return 0.5F * s.x[i] + 0.01F * s.y[i]; };
  expect_equals_scalar([](Spans s) { vec::sgd_step(s.y, s.x, {}, {.lr = 0.1F, .weight_decay = 0.01F, .scale = 0.5F}); },
                       [&](Spans s, std::size_t i) { s.y[i] = s.y[i] - 0.1F * decayed(s, i); });
  for (const bool nesterov : {false, true}) {
    const vec::SgdStep step{.lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F, .scale = 0.5F, .nesterov = nesterov};
    expect_equals_scalar([&](Spans s) { vec::sgd_step(s.y, s.x, s.v, step); },
                         [&](Spans s, std::size_t i) {
                           const float g = decayed(s, i);
                           s.v[i] = 0.9F * s.v[i] + g;
                           const float direction = nesterov ? g + 0.9F * s.v[i] : s.v[i];
                           s.y[i] = s.y[i] - 0.1F * direction;
                         });
  }
}

TEST(Vec, AdamStepsAsAScalarLoopDoes) {
  const vec::AdamStep a{.rate = 0.01F,
                        .beta1 = 0.9F,
                        .one_minus_beta1 = 0.1F,
                        .beta2 = 0.99F,
                        .one_minus_beta2 = 0.01F,
                        .root_correction2 = 0.2F,
                        .eps = 1e-8F,
                        .l2_decay = 0.03F,
                        .keep = 0.98F,
                        .scale = 0.25F};
  expect_equals_scalar([&](Spans s) { vec::adam_step(s.y, s.x, s.v, s.u, a); },
                       [&](Spans s, std::size_t i) {
                         const float g = a.scale * s.x[i] + a.l2_decay * s.y[i];
                         s.v[i] = a.beta1 * s.v[i] + a.one_minus_beta1 * g;
                         s.u[i] = a.beta2 * s.u[i] + a.one_minus_beta2 * (g * g);
                         const float below = std::sqrt(s.u[i]) / a.root_correction2 + a.eps;
                         s.y[i] = a.keep * s.y[i] - a.rate * s.v[i] / below;
                       });
}

TEST(Vec, SumsSquaresInOneOrderOnEveryProcessor) {
  for (const std::size_t count : {0, 1, 2, 15, 16, 17, 31, 33, 67, 1000, 4097}) {
    const std::vector<float> x = random_values(count, 7, false);
    std::array<double, 16> sums{};
    for (std::size_t i = 0; i < count; ++i) sums[i % 16] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
    }
    on_every_target([&] { EXPECT_EQ(vec::sum_of_squares(x), sums[0]) << count << " elements"; });
  }
}

TEST(Vec, SumsAbsoluteProductsInOneOrderOnEveryProcessor) {
  for (const std::size_t count : {0, 1, 15, 16, 17, 67, 4097}) {
    const std::vector<float> x = random_values(count, 7, false), y = random_values(count, 8, false);
    std::array<double, 16> sums{};
    for (std::size_t i = 0; i < count; ++i) sums[i % 16] += std::abs(static_cast<double>(x[i]) * y[i]);
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
    }
    on_every_target([&] { EXPECT_EQ(vec::sum_abs_products(x, y), sums[0]) << count << " elements"; });
  }
}

TEST(Vec, DotMultipliesElementByElement) {
  for (const std::size_t count : {0, 1, 15, 16, 33, 1000}) {
    const std::vector<float> a = random_values(count, 7, false), b = random_values(count, 8, false);
    const std::vector<double> wide(a.begin(), a.end());
    const double expected = std::inner_product(wide.begin(), wide.end(), b.begin(), 0.0);
    const double size = std::sqrt(vec::sum_of_squares(a) * vec::sum_of_squares(b));
    on_every_target([&] { EXPECT_NEAR(vec::dot(a, b), expected, 1e-12 * size) << count << " elements"; });
  }
}

TEST(Vec, SumsSquaresThatAFloatCannotHold) {
  const std::vector<float> x = {3e38F, 3e38F};
  EXPECT_NEAR(vec::sum_of_squares(x) / 1.8e77, 1.0, 1e-6);
}

TEST(Vec, FindsTheFirstNonfiniteWhereverItIs) {
  for (const std::size_t count : {1, 7, 64, 1024, 1025, 3000}) {
    const std::vector<float> finite(count, std::numeric_limits<float>::max());
    on_every_target([&] {
      EXPECT_EQ(vec::first_nonfinite(finite), count);
      for (std::size_t at = 0; at < count; at += 1 + count / 50) {
        for (const float bad : {kInf, -kInf, kNan, -kNan}) {
          std::vector<float> x = finite;
          x[at] = bad;
          x.back() = kNan;
          ASSERT_EQ(vec::first_nonfinite(x), at);
        }
      }
    });
  }
  EXPECT_EQ(vec::first_nonfinite({}), 0U);
}

TEST(Vec, RefusesSpansOfDifferentSizes) {
  std::vector<float> three(3), four(4), moments(3);
  std::vector<std::uint16_t> halves(4);
  EXPECT_THROW(vec::copy(three, four), Error);
  EXPECT_THROW(vec::add(three, four), Error);
  EXPECT_THROW(vec::add_scaled(three, four, 1.0F), Error);
  EXPECT_THROW(vec::lerp(three, four, 1.0F), Error);
  EXPECT_THROW(vec::mix(three, 1.0F, four, 1.0F), Error);
  EXPECT_THROW(vec::copy_twice(three, four, three), Error);
  EXPECT_THROW(vec::copy_twice(four, three, three), Error);
  EXPECT_THROW(vec::rebase(three, four, three, 1.0F), Error);
  EXPECT_THROW(vec::rebase(three, three, four, 1.0F), Error);
  EXPECT_THROW(vec::subtract(three, three, four), Error);
  EXPECT_THROW(vec::subtract(three, four, three), Error);
  EXPECT_THROW(vec::sgd_step(three, four, {}, {}), Error);
  EXPECT_THROW(vec::sgd_step(three, three, four, {.momentum = 0.9F}), Error);
  EXPECT_THROW(vec::sgd_step(three, three, {}, {.nesterov = true}), Error);
  EXPECT_THROW(vec::adam_step(three, three, moments, four, {}), Error);
  EXPECT_THROW(vec::to_fp16(halves, three), Error);
  EXPECT_THROW(vec::from_bf16(three, halves), Error);
  EXPECT_THROW(vec::add_scaled_fp16(three, halves, 1.0F), Error);
}

}  // namespace
}  // namespace slipstream
