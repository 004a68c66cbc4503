// SPDX-License-Identifier: Apache-2.0
#include "runtime/chaos.h"

#include <gtest/gtest.h>

#include <map>

#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;

TEST(Chaos, InflictsWhatItWasAskedForOnRunningProcessesOnly) {
  Chaos chaos("kills=5,freezes=2,cuts=1", 7);
  EXPECT_TRUE(chaos.cuts());
  std::map<Chaos::Kind, int> seen;
  for (double now = 0; now < 100; now += 0.1) {
    const auto fault = chaos.next(now, {1, 4}, 1);
    if (!fault) continue;
    EXPECT_TRUE(fault->victim == 1 || fault->victim == 4);
    ++seen[fault->kind];
  }
  EXPECT_EQ(seen[Chaos::Kind::kKill], 5);
  EXPECT_EQ(seen[Chaos::Kind::kFreeze], 2);
  EXPECT_EQ(seen[Chaos::Kind::kCut], 1);
  EXPECT_EQ(chaos.done(), 8);
}

TEST(Chaos, WaitsWhileNoWorkerCanBeSpared) {
  Chaos chaos("kills=1", 1);
  for (double now = 0; now < 100; now += 0.1) ASSERT_FALSE(chaos.next(now, {0, 1}, 0));
  EXPECT_TRUE(chaos.next(101, {0, 1}, 1));
}

TEST(Chaos, WhatItDoesNotUnderstandIsRefused) {
  for (const std::string spec : {"kill=3", "kills", "kills=", "kills=x", "kills=-1", "kills=3;cuts=1", "=3"}) {
    expect_error<ConfigError>([&] { Chaos(spec, 1); }, {"--chaos", spec, "kills=N"});
  }
}

}  // namespace
}  // namespace slipstream
