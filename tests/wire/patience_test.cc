// SPDX-License-Identifier: Apache-2.0
#include "wire/patience.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

TEST(Patience, IsWhatTheUserGave) {
  Patience patience(7);
  for (const double now : {0.0, 100.0, 300.0}) patience.waited_until(now);
  EXPECT_EQ(patience.silence(), 7);
  EXPECT_EQ(patience.waiting(), 7);
}

TEST(Patience, FollowsTheLongestTimeBetweenTwoWaitsWithinBounds) {
  Patience patience(0);
  EXPECT_EQ(patience.silence(), 30);
  EXPECT_EQ(patience.waiting(), 120);
  patience.waited_until(1000);  // since when nobody knows
  patience.waited_until(1000.5);
  EXPECT_EQ(patience.waiting(), 120) << "steps of half a second";
  patience.waited_until(1030.5);
  patience.waited_until(1031);
  EXPECT_EQ(patience.waiting(), 600) << "a rank evaluated for 30 s";
  patience.waited_until(3000);
  EXPECT_EQ(patience.waiting(), 3600);
  EXPECT_EQ(patience.silence(), 30) << "life is shown whatever the steps do";
}

}  // namespace
}  // namespace slipstream
