// SPDX-License-Identifier: Apache-2.0
#include "schedule/delay_rule.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

TEST(DelayRule, TheDelayIsTheShortestThatHidesAndThePeriodTwiceThatAndAtLeastFour) {
  for (double steps = 0.01; steps < 200; steps *= 1.07) {
    const auto choice = DelayRule{}.choose(steps);
    EXPECT_GE(static_cast<double>(choice.delay), steps - 0.06);
    EXPECT_TRUE(choice.delay == 1 || static_cast<double>(choice.delay) < steps + 1) << steps;
    EXPECT_EQ(choice.period, std::max<std::int64_t>(4, 2 * choice.delay));
    EXPECT_EQ(choice.needed, choice.delay);
  }
}

TEST(DelayRule, AHairMoreThanADelayIsNotWorthAnother) {
  EXPECT_EQ(DelayRule{}.choose(3.04).delay, 3);
  EXPECT_EQ(DelayRule{}.choose(3.06).delay, 4);
}

TEST(DelayRule, AGivenPeriodBoundsTheDelayAndSaysWhatWouldBeNeeded) {
  const DelayRule rule{5, {}};
  EXPECT_EQ(rule.choose(2.5).delay, 3);
  EXPECT_EQ(rule.choose(7.5).delay, 5);
  EXPECT_EQ(rule.choose(7.5).needed, 8);
  EXPECT_EQ(rule.choose(7.5).period, 5);
}

TEST(DelayRule, AGivenDelayNeedsNoMeasurement) {
  for (std::int64_t delay : {0, 1, 2, 7}) {
    const DelayRule rule{{}, delay};
    EXPECT_FALSE(rule.measures());
    EXPECT_EQ(rule.choose(0).delay, delay);
    EXPECT_EQ(rule.choose(0).period, std::max<std::int64_t>(4, 2 * delay));
  }
}

TEST(DelayRule, UntilSomethingIsMeasuredAnAverageIsMergedOneStepLate) {
  EXPECT_EQ(DelayRule{}.choose(0).delay, 1);
  EXPECT_EQ((DelayRule{9, {}}).choose(0).delay, 1);
}

}  // namespace
}  // namespace slipstream
