// SPDX-License-Identifier: Apache-2.0
#include "schedule/warmup.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

TEST(Warmup, CoversExactlyItsFirstSteps) {
  const Warmup warmup{3};
  EXPECT_TRUE(warmup.active(0));
  EXPECT_TRUE(warmup.active(2));
  EXPECT_FALSE(warmup.active(3));
}

TEST(Warmup, ClimbsInEqualStepsToOneAndStaysThere) {
  const Warmup warmup{4};
  EXPECT_EQ(warmup.fraction(0), 0.25);
  EXPECT_EQ(warmup.fraction(1), 0.5);
  EXPECT_EQ(warmup.fraction(3), 1.0);
  EXPECT_EQ(warmup.fraction(4), 1.0);
  EXPECT_EQ(warmup.fraction(1000), 1.0);
}

TEST(Warmup, OfNoStepsIsNeverActive) {
  EXPECT_FALSE(Warmup{}.active(0));
  EXPECT_EQ(Warmup{}.fraction(0), 1.0);
}

}  // namespace
}  // namespace slipstream
