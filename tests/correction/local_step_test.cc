// SPDX-License-Identifier: Apache-2.0
#include "correction/local_step.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

using Floats = std::vector<float>;
using Kind = LocalStep::Kind;

Floats stepped(LocalStep& local, Floats weights, Floats grads, double lr) {
  local.step(weights, grads, lr);
  return weights;
}

TEST(LocalStep, PlainIsSgdWithItsOwnMomentumAndDecay) {
  LocalStep local(Kind::kPlain, 0.5, 0.25, Floats{4});
  EXPECT_EQ(stepped(local, {4}, {1}, 0.5), Floats{3});  // v = 1 + 1
  EXPECT_EQ(stepped(local, {4}, {0}, 0.5), Floats{3});  // v = 1 + 1
  EXPECT_TRUE(local.estimate().empty()) << "and keeps no more memory than it needs";
}

TEST(LocalStep, GluIsPlainUntilItHasSeenTheGlobalWeightsMove) {
  LocalStep local(Kind::kGlu, 0.0, 0.0, Floats{1});
  EXPECT_EQ(stepped(local, {1}, {2}, 0.5), Floats{0});
  local.adopt(Floats{0}, 0.25);  // the global weights moved by 1 at rates of 0.25 in all: a gradient of 4
  EXPECT_EQ(stepped(local, {1}, {2}, 0.5), Floats{-0.5});  // half of 2, half of 4
}

TEST(LocalStep, GluTakesDecayOutOfWhatItLearns) {
  LocalStep local(Kind::kGlu, 0.0, 0.5, Floats{2});
  local.adopt(Floats{0}, 0.5);  // (2 - 0) / 0.5 - 0.5 × 2
  EXPECT_EQ(local.estimate()[0], 3.0F);
  EXPECT_EQ(stepped(local, {1}, {1}, 1.0), Floats{-1.5});  // 1 - (0.5 + 1.5 + 0.5)
}

TEST(LocalStep, ARestartForgetsThePastMovement) {
  LocalStep local(Kind::kGlu, 0.0, 0.0, Floats{8});
  local.restart(Floats{1});
  local.adopt(Floats{0}, 1.0);
  EXPECT_EQ(local.estimate()[0], 1.0F);
  local.adopt(Floats{5}, 0.0);  // a rate of 0 tells nothing
  EXPECT_EQ(local.estimate()[0], 1.0F);
}

TEST(LocalStep, ReleasedUsesTheStepBeforeAsTheReleasedPrototypeDoes) {
  LocalStep local(Kind::kReleased, 0.0, 0.0, Floats{1});
  EXPECT_EQ(stepped(local, {1}, {0.25}, 1.0), Floats{0.5});              // 2 g, nothing moved yet
  EXPECT_EQ(stepped(local, {0.5}, {0}, 1.0), Floats{0.5F - 0.5F / 16});  // half of (1 - 0.5) / 8
}

}  // namespace
}  // namespace slipstream
