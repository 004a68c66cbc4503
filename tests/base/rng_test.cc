// SPDX-License-Identifier: Apache-2.0
#include "base/rng.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace slipstream {
namespace {

TEST(Rng, SameKeySameNumbers) {
  Rng a(1, 2, 3, 4), b(1, 2, 3, 4);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next(), b.next());
}

TEST(Rng, EveryPartOfTheKeyCounts) {
  std::set<std::uint64_t> firsts;
  for (std::uint64_t i = 0; i < 256; ++i) firsts.insert(Rng(i & 3, i >> 2 & 3, i >> 4 & 3, i >> 6).next());
  EXPECT_EQ(firsts.size(), 256U);
}

TEST(Rng, UniformHasItsMeanAndStaysInside) {
  Rng rng(7);
  double sum = 0.0;
  for (int i = 0; i < 100'000; ++i) {
    const double x = rng.uniform(-1, 3);
    ASSERT_TRUE(x >= -1 && x < 3);
    sum += x;
  }
  EXPECT_NEAR(sum / 100'000, 1.0, 0.02);
}

TEST(Rng, NormalHasMeanZeroAndVarianceOne) {
  Rng rng(8);
  double sum = 0.0, squares = 0.0;
  for (int i = 0; i < 100'000; ++i) {
    const double x = rng.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 100'000, 0.0, 0.02);
  EXPECT_NEAR(squares / 100'000, 1.0, 0.02);
}

TEST(Rng, BelowReachesEveryValueEvenly) {
  Rng rng(9);
  std::vector<int> counts(7);
  for (int i = 0; i < 70'000; ++i) ++counts.at(rng.below(7));
  for (int count : counts) EXPECT_NEAR(count, 10'000, 500);
}

}  // namespace
}  // namespace slipstream
