// SPDX-License-Identifier: Apache-2.0
#include "schedule/delayed.h"

#include <gtest/gtest.h>

#include <vector>

namespace slipstream {
namespace {

using Steps = std::vector<std::int64_t>;

Steps when(const auto& question) {
  Steps yes;
  for (std::int64_t t = 0; t < 14; ++t) {
    if (question(t)) yes.push_back(t);
  }
  return yes;
}

Steps sends(Delayed d) {
  return when([d](std::int64_t t) { return d.sends(t); });
}
Steps applies(Delayed d) {
  return when([d](std::int64_t t) { return d.applies(t); });
}

TEST(Delayed, AppliesSoManyStepsAfterItSent) {
  EXPECT_EQ(sends({4, 2}), (Steps{3, 7, 11}));
  EXPECT_EQ(applies({4, 2}), (Steps{5, 9, 13}));
}

TEST(Delayed, WithoutDelayItAppliesWhereItSends) { EXPECT_EQ(applies({4, 0}), sends({4, 0})); }

TEST(Delayed, ADelayOfThePeriodAppliesWhereTheNextIsSent) { EXPECT_EQ(applies({4, 4}), (Steps{7, 11})); }

TEST(Delayed, AnOffsetMovesAllOfIt) {
  EXPECT_EQ(sends({4, 1, 2}), (Steps{5, 9, 13}));
  EXPECT_EQ(applies({4, 1, 2}), (Steps{6, 10}));
}

TEST(Delayed, AnotherPeriodCountsFromTheLastSending) {
  EXPECT_EQ(sends(Delayed({4, 2}).changed(3, 6, 3)), (Steps{9}));
  EXPECT_EQ(applies(Delayed({4, 2}).changed(3, 6, 3)), (Steps{12}));
  EXPECT_EQ(sends(Delayed({4, 2}).changed(7, 4, 2)), (Steps{11})) << "unchanged";
  EXPECT_EQ(sends(Delayed({4, 2}).changed(-1, 5, 2)), sends({5, 2}));
}

TEST(Delayed, NothingHappensBeforeTheFirstStep) {
  for (std::int64_t t = -20; t < 0; ++t) EXPECT_FALSE(Delayed({4, 1}).sends(t) || Delayed({4, 1}).applies(t)) << t;
}

}  // namespace
}  // namespace slipstream
