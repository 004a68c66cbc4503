// SPDX-License-Identifier: Apache-2.0
#include "watch/progress.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace slipstream {
namespace {

TEST(Progress, ShowsStepLossSpeedAndTimeLeft) {
  const Progress progress(false, 100, 64);
  // 10 steps in 5 s: 128 samples/s; 90 more take 45 s.
  EXPECT_EQ(progress.line(10, 0.51234, 5.0, 0.257),
            "step 10/100  mean loss 0.5123  128 samples/s  waiting 26 %  0:45 left");
}

TEST(Progress, ShowsMinutesAndSecondsWithTwoDigits) {
  const Progress progress(false, 1000, 1);
  EXPECT_NE(progress.line(500, 1, 605.0, 0).find("10:05 left"), std::string::npos);
  EXPECT_NE(progress.line(1000, 1, 605.0, 0).find("0:00 left"), std::string::npos);
}

TEST(Progress, DrawsABarOnATerminalOnly) {
  const auto filled = [](const std::string& line) {
    std::size_t count = 0;
    for (auto at = line.find("█"); at != std::string::npos; at = line.find("█", at + 1)) ++count;
    return count;
  };
  const Progress terminal(true, 100, 1), plain(false, 100, 1);
  EXPECT_EQ(filled(terminal.line(0, 1, 1, 0, 120)), 0U);
  EXPECT_EQ(filled(terminal.line(50, 1, 1, 0, 120)), 12U);
  EXPECT_EQ(filled(terminal.line(100, 1, 1, 0, 120)), 24U);
  EXPECT_EQ(plain.line(50, 1, 1, 0).find("█"), std::string::npos);
}

TEST(Progress, ALineIsNeverAsLongAsTheTerminalIsWide) {
  const auto width = [](const std::string& line) {
    return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
  };
  const Progress progress(true, 1'000'000, 4096);
  for (const std::size_t columns : {20U, 60U, 70U, 80U, 90U, 200U}) {
    const std::string line = progress.line(123'456, 12.3456, 7.0, 0.5, columns);
    EXPECT_LT(width(line), static_cast<std::ptrdiff_t>(columns)) << line;
  }
  EXPECT_NE(progress.line(1, 1, 1, 0, 90).find("░"), std::string::npos) << "a shorter bar before none";
}

TEST(Progress, PrintsTheLastStepEvenRightAfterTheFirst) {
  testing::internal::CaptureStderr();
  Progress progress(false, 3, 1);
  for (std::int64_t t = 0; t < 3; ++t) progress.step({.t = t, .loss = 2.0, .seconds = 1.0, .exposed_seconds = 0.5});
  progress.finish();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("step 3/3  mean loss 2.0000"), std::string::npos) << text;
  EXPECT_NE(text.find("waiting 50 %"), std::string::npos) << text;
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(text.find('\r'), std::string::npos) << "no terminal codes in a file";
}

TEST(Progress, SmoothsTheLoss) {
  testing::internal::CaptureStderr();
  Progress progress(false, 2, 1);
  progress.step({.t = 0, .loss = 2.0});
  progress.step({.t = 1, .loss = 1.0});
  EXPECT_NE(testing::internal::GetCapturedStderr().find("loss 1.9000"), std::string::npos);
}

TEST(Progress, LeavesTheTerminalOnAFreshLine) {
  testing::internal::CaptureStderr();
  Progress progress(true, 1, 1);
  progress.step({.t = 0, .loss = 2.0});
  progress.finish();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.front(), '\r');
  EXPECT_EQ(text.back(), '\n');
}

}  // namespace
}  // namespace slipstream
