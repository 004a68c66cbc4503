// SPDX-License-Identifier: Apache-2.0
#include "correction/own_clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace slipstream {
namespace {

double norm(const std::vector<float>& g) {
  double sum = 0;
  for (const float x : g) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

// A first step with buckets of norms 3 and 4, so of 9 and 16 parts in 25.
OwnClip after_a_first_step(double limit) {
  OwnClip clip(limit, 2);
  std::vector<float> whole{3, 0, 4};
  clip.note(0, std::span(whole).first(2));
  clip.note(1, std::span(whole).last(1));
  clip.clip_whole(whole);
  EXPECT_NEAR(norm(whole), std::min(5.0, limit), 1e-5);
  clip.end_step();
  return clip;
}

TEST(OwnClip, WaitsForTheWholeGradientInTheFirstStepOnly) {
  EXPECT_TRUE(OwnClip(1, 2).waits());
  EXPECT_FALSE(after_a_first_step(1).waits());
}

TEST(OwnClip, AGradientThatGrowsInAllPartsAlikeIsShortenedAsTheWholeWouldBe) {
  OwnClip clip = after_a_first_step(10);
  std::vector<float> a{30, 0}, b{40};
  clip.clip(0, a);
  clip.clip(1, b);
  EXPECT_NEAR(a[0], 6, 1e-4);
  EXPECT_NEAR(b[0], 8, 1e-4);
}

TEST(OwnClip, NoGradientIsLongerThanTheLimit) {
  OwnClip clip = after_a_first_step(2);
  for (int t = 0; t < 50; ++t) {
    std::vector<float> a{static_cast<float>(t % 7), 1}, b{static_cast<float>(100 * (t % 3))};
    clip.clip(0, a);
    clip.clip(1, b);
    EXPECT_LE(std::hypot(norm(a), norm(b)), 2 + 1e-4) << t;
    clip.end_step();
  }
}

TEST(OwnClip, ShortGradientsStayAsTheyAre) {
  OwnClip clip = after_a_first_step(10);
  std::vector<float> a{3, 0.5F}, b{4};
  clip.clip(0, a);
  clip.clip(1, b);
  EXPECT_EQ(a, (std::vector<float>{3, 0.5F}));
  EXPECT_EQ(b, (std::vector<float>{4}));
}

TEST(OwnClip, WhatIsNotFinitePassesOnAndTeachesNothing) {
  OwnClip clip = after_a_first_step(10);
  std::vector<float> a{std::numeric_limits<float>::quiet_NaN(), 0}, b{4};
  clip.clip(0, a);
  clip.clip(1, b);
  clip.end_step();
  EXPECT_TRUE(std::isnan(a[0]));
  std::vector<float> c{30, 0};
  clip.clip(0, c);
  EXPECT_NEAR(c[0], 6, 1e-4) << "its usual share";
}

}  // namespace
}  // namespace slipstream
