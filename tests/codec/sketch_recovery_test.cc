// SPDX-License-Identifier: Apache-2.0
//
// heaviest and heavymix against brute force over all estimates. Seeds are fixed, so the statistical bounds hold always
// or never.
#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "base/every_target.h"
#include "base/rng.h"
#include "codec/count_sketch.h"

namespace slipstream {
namespace {

using Indices = std::vector<std::uint32_t>;

CountSketch normal_sketch(const SketchShape& shape, std::size_t d, std::uint64_t seed) {
  Rng random(seed);
  std::vector<float> x(d);
  for (float& value : x) value = static_cast<float>(random.normal());
  CountSketch sketch(shape);
  sketch.add(0, x);
  return sketch;
}

CountSketch exact_sketch(std::span<const float> x) {
  CountSketch sketch({.rows = 1, .columns = x.size(), .identity = true});
  sketch.add(0, x);
  return sketch;
}

Indices brute_force(const CountSketch& sketch, std::size_t d, std::size_t count) {
  std::vector<float> estimates(d);
  sketch.estimate(0, estimates);
  Indices order(d);
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return std::abs(estimates[a]) > std::abs(estimates[b]); });
  order.resize(std::min(count, d));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(SketchRecovery, HeaviestEqualsBruteForceOnEveryTarget) {
  on_every_target([] {
    const CountSketch sketch = normal_sketch({.rows = 3, .columns = 4096, .seed = 1}, 30000, 2);
    for (const std::size_t d : {1U, 5U, 16U, 4096U, 4097U, 30000U}) {
      for (const std::size_t count : {0U, 1U, 2U, 100U, 4000U, 29999U, 30000U, 50000U}) {
        ASSERT_EQ(sketch.heaviest(d, count), brute_force(sketch, d, count)) << count << " of " << d;
      }
    }
  });
}

TEST(SketchRecovery, HeaviestOfALongVectorEqualsBruteForce) {  // long enough for the threshold to be guessed
  const CountSketch sketch = normal_sketch({.rows = 5, .columns = 16384, .seed = 3}, 400'001, 4);
  for (const std::size_t count : {1U, 40U, 400U, 4000U, 300'000U}) {
    ASSERT_EQ(sketch.heaviest(400'001, count), brute_force(sketch, 400'001, count)) << count;
  }
}

TEST(SketchRecovery, TheLowerIndexWinsAmongEquals) {
  std::vector<float> x(300'000, 1.0F);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] = -1.0F;
  x[250'000] = 2.0F;
  EXPECT_EQ(exact_sketch(x).heaviest(x.size(), 4), (Indices{0, 1, 2, 250'000}));
  const CountSketch empty({.rows = 5, .columns = 64});
  EXPECT_EQ(empty.heaviest(1000, 3), (Indices{0, 1, 2}));
}

TEST(SketchRecovery, HeaviestIsExactHoweverMagnitudesAreOrdered) {
  std::vector<float> rising(300'000), sampled(300'000), falling(300'000);
  for (std::size_t i = 0; i < rising.size(); ++i) {
    rising[i] = static_cast<float>(i);
    falling[i] = -static_cast<float>(rising.size() - i);
    // Heavy in the first 80 of every 292 (300,000 / 1,024): a sample there sees nothing else and guesses too high.
    sampled[i] = i % 292 < 80 ? 1000.0F : static_cast<float>(i % 1000);
  }
  for (const std::vector<float>& x : {rising, falling, sampled}) {
    const CountSketch sketch = exact_sketch(x);
    for (const std::size_t count : {10U, 3000U, 100'000U}) {
      ASSERT_EQ(sketch.heaviest(x.size(), count), brute_force(sketch, x.size(), count)) << count;
    }
  }
}

TEST(SketchRecovery, FindsWhatIsHeavyInTheSumOnly) {  // GS-2
  constexpr std::size_t kDimension = 20000, kWorkers = 8, kHeavy = 20;
  const SketchShape shape{.rows = 5, .columns = 4096, .seed = 5};
  CountSketch sum(shape);
  Indices planted;
  for (std::uint32_t n = 0; n < kHeavy; ++n) planted.push_back(n * 900 + 3);
  for (std::size_t worker = 0; worker < kWorkers; ++worker) {
    Rng random(6, worker);
    std::vector<float> x(kDimension);
    for (float& value : x) value = static_cast<float>(0.02 * random.normal());
    for (const std::uint32_t i : planted) x[i] = 1.0F;
    for (std::size_t n = 0; n < kHeavy; ++n) x[n * 900 + 100 + worker] = 3.0F;  // its own, larger, elsewhere on others
    const Indices local = exact_sketch(x).heaviest(kDimension, kHeavy);
    Indices common;
    std::set_intersection(local.begin(), local.end(), planted.begin(), planted.end(), std::back_inserter(common));
    ASSERT_TRUE(common.empty());
    CountSketch sketch(shape);
    sketch.add(0, x);
    sum.merge(sketch.table());
  }
  EXPECT_EQ(sum.heaviest(kDimension, kHeavy), planted);
}

TEST(SketchRecovery, HeavymixTakesAllHeavyOnesAndFillsUp) {
  std::vector<float> x(1000, 0.01F);
  for (const std::size_t i : {0U, 7U, 500U, 999U}) x[i] = i % 2 == 0 ? 1.0F : -1.0F;
  const CountSketch sketch = exact_sketch(x);
  std::set<Indices> fills;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Indices chosen = sketch.heavymix(1000, 10, seed);
    ASSERT_EQ(chosen.size(), 10U);
    EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end(), std::less_equal<>())) << "ascending and different";
    EXPECT_LT(chosen.back(), 1000U);
    const Indices heavy = {0, 7, 500, 999};
    EXPECT_TRUE(std::includes(chosen.begin(), chosen.end(), heavy.begin(), heavy.end()));
    EXPECT_EQ(chosen, sketch.heavymix(1000, 10, seed));
    fills.insert(chosen);
  }
  EXPECT_EQ(fills.size(), 20U);
}

TEST(SketchRecovery, HeavymixKeepsTheHeaviestWhereTooManyAreHeavy) {
  // A small table: nearly every estimate exceeds the norm / sqrt(k).
  const CountSketch sketch = normal_sketch({.rows = 1, .columns = 16, .seed = 7}, 2000, 8);
  EXPECT_EQ(sketch.heavymix(2000, 50, 9), brute_force(sketch, 2000, 50));
}

TEST(SketchRecovery, HeavymixUsesTheExactThreshold) {
  // Fifty ones and twice v: v is heavy for k = 4 where v² >= (50 + 2 v²) / 4, that is from 5 on.
  const auto times_both_chosen = [](float v) {
    std::vector<float> x(80, 0.0F);
    std::fill(x.begin(), x.begin() + 50, 1.0F);
    x[78] = -v, x[79] = v;
    const CountSketch sketch = exact_sketch(x);
    int times = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const Indices chosen = sketch.heavymix(80, 4, seed);
      times += chosen[2] == 78 && chosen[3] == 79 ? 1 : 0;
    }
    return times;
  };
  EXPECT_EQ(times_both_chosen(5.0F), 50);
  EXPECT_LT(times_both_chosen(std::nextafter(5.0F, 0.0F)), 10);  // by chance only: 0.2 % of the draws
}

TEST(SketchRecovery, HeavymixOfEverythingOrNothing) {
  const CountSketch sketch = normal_sketch({.rows = 3, .columns = 64, .seed = 10}, 100, 11);
  Indices all(100);
  std::iota(all.begin(), all.end(), 0U);
  EXPECT_EQ(sketch.heavymix(100, 100, 1), all);
  EXPECT_EQ(sketch.heavymix(100, 1000, 1), all);
  EXPECT_TRUE(sketch.heavymix(100, 0, 1).empty());
  EXPECT_TRUE(sketch.heavymix(0, 5, 1).empty());
}

TEST(SketchRecovery, TheFillIsUniform) {
  std::vector<float> x(50, 1.0F);
  x[10] = 100.0F;  // always chosen; the other 49 share the remaining 7 places
  const CountSketch sketch = exact_sketch(x);
  constexpr int kDraws = 7000;
  std::vector<double> counts(x.size());
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    for (const std::uint32_t i : sketch.heavymix(x.size(), 8, seed)) ++counts[i];
  }
  EXPECT_EQ(counts[10], kDraws);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i == 10) continue;
    EXPECT_NEAR(counts[i], kDraws / 7.0, 5 * std::sqrt(kDraws / 7.0 * 6 / 7)) << i;
  }
}

TEST(SketchRecovery, HeavymixContractsInExpectation) {
  constexpr std::size_t kDimension = 512, kChosen = 16;
  const double bound = 1.0 - static_cast<double>(kChosen) / kDimension;
  for (const double tail : {0.0, 1.0, 3.0}) {  // from a flat vector, where the bound is met exactly, to a peaked one
    Rng random(12);
    std::vector<float> x(kDimension);
    for (float& value : x) value = static_cast<float>(std::pow(1.0 - random.uniform(), -tail / 4));
    double norm = 0, left = 0;
    for (const float value : x) norm += static_cast<double>(value) * value;
    constexpr std::uint64_t kSeeds = 500;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      CountSketch sketch({.rows = 5, .columns = 128, .seed = seed});
      sketch.add(0, x);
      double rest = norm;
      for (const std::uint32_t i : sketch.heavymix(kDimension, kChosen, seed)) rest -= static_cast<double>(x[i]) * x[i];
      left += rest / norm / kSeeds;
    }
    EXPECT_LE(left, bound + 1e-9) << "tail " << tail;
    if (tail == 3.0) {
      EXPECT_LT(left, 0.7) << "a peaked vector must lose most of its mass";
    }
  }
}

}  // namespace
}  // namespace slipstream
