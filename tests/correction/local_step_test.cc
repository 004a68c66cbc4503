// SPDX-License-Identifier: Apache-2.0
#include "correction/local_step.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

using Floats = std::vector<float>;

Floats stepped(LocalStep& local, Optimizer& optimizer, Floats weights, Floats grads, double lr) {
  local.step(optimizer, weights, grads, lr);
  return weights;
}

std::unique_ptr<Optimizer> sgd(double lr, double momentum = 0.0, double weight_decay = 0.0) {
  return make_optimizer({.lr = lr, .momentum = momentum, .weight_decay = weight_decay}, 1);
}

TEST(LocalStep, WithoutAMixItIsTheOptimizersStepAtAnotherRate) {
  LocalStep local(0.0, Floats{4}, 1);
  const auto rule = sgd(0.125, 0.5, 0.25);
  EXPECT_EQ(stepped(local, *rule, {4}, {1}, 0.5), Floats{3});  // v = 1 + 1
  EXPECT_EQ(stepped(local, *rule, {4}, {0}, 0.5), Floats{3});  // v = 1 + 1
  EXPECT_EQ(rule->lr(), 0.125) << "which stays the servers'";
  EXPECT_TRUE(local.estimate().empty()) << "and keeps no memory";
}

TEST(LocalStep, MixesInTheGlobalGradientOnceItHasSeenTheWeightsMove) {
  LocalStep local(0.25, Floats{1}, 1);
  const auto rule = sgd(0.5);
  EXPECT_EQ(stepped(local, *rule, {1}, {2}, 0.5), Floats{0});
  local.adopt(*rule, Floats{0}, 0.25);  // moved by 1 at rates of 0.25 in all: a gradient of 4
  EXPECT_EQ(local.estimate()[0], 4.0F);
  EXPECT_EQ(stepped(local, *rule, {1}, {2}, 0.5), Floats{1 - 0.5F * (1.5F + 1.0F)});
}

TEST(LocalStep, TakesMomentumAndDecayOutOfWhatItLearns) {
  LocalStep local(0.5, Floats{2}, 1);
  local.adopt(*sgd(0.5, 0.75, 0.5), Floats{0}, 0.5);  // a quarter of (2 - 0) / 0.5, less 0.5 × 2
  EXPECT_EQ(local.estimate()[0], 0.0F);
}

TEST(LocalStep, AMovementThatItFollowedStepByStepIsNoPeriods) {
  LocalStep local(0.5, Floats{8}, 1);
  const auto rule = sgd(0.5);
  Floats weights{8};
  local.follow(*rule, weights, Floats{0}, Floats{1});
  EXPECT_EQ(weights, Floats{1});
  local.adopt(*rule, Floats{0}, 0.5);
  EXPECT_EQ(local.estimate()[0], 2.0F) << "since the last step that was followed";
}

// After a warm-up the worker's optimizer holds what the servers' holds, though it saw only weights.
TEST(LocalStep, FollowingTheServersReadsTheirVelocityOffTheWeights) {
  for (bool nesterov : {false, true}) {
    const OptimizerOptions rule{.lr = 0.1, .momentum = 0.9, .nesterov = nesterov, .weight_decay = 0.01};
    const auto server = make_optimizer(rule, 2), mine = make_optimizer(rule, 2);
    Floats weights{1.0F, -2.0F}, copy = weights;
    LocalStep local(0.1, weights, 1);
    for (int t = 0; t < 20; ++t) {
      const double lr = t == 7 ? 0.0 : 0.1 / (1 + 0.2 * t);
      const Floats grads{0.3F * static_cast<float>(t % 4) - 0.4F, 0.2F}, own{5.0F, 5.0F};
      server->set_lr(lr);
      mine->set_lr(lr);
      server->step(weights, grads);
      local.follow(*mine, copy, own, weights);
      EXPECT_EQ(copy, weights);
    }
    for (std::size_t j = 0; j < 2; ++j) {
      EXPECT_NEAR(mine->momentum()[j], server->momentum()[j], 1e-4) << (nesterov ? "Nesterov" : "momentum");
    }
  }
}

// Three weights: the first at half the rate, the second without decay, the third fixed.
TEST(LocalStep, ReadsEveryGroupOffWithItsOwnRateAndDecay) {
  OptimizerOptions rule{.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.2};
  rule.groups = {{.lr_factor = 0.5}, {.weight_decay = 0.0}, {.lr_factor = 0.0}};
  GroupMap map;
  for (const int group : {0, 1, 2}) map.append(1, group);
  const auto server = make_optimizer(rule, 3, OptimizerUse::kSteps, map);
  const auto mine = make_optimizer(rule, 3, OptimizerUse::kSteps, map);
  Floats weights{1, 2, 3}, copy = weights;
  LocalStep local(0.1, weights, 1);
  for (int t = 0; t < 20; ++t) {
    server->step(weights, Floats{0.5F, -0.25F, 1.0F});
    local.follow(*mine, copy, Floats{9, 9, 9}, weights);
  }
  const auto theirs = server->momentum(), read = mine->momentum();
  for (const std::size_t i : {0, 1}) EXPECT_NEAR(read[i], theirs[i], 1e-4 * std::abs(theirs[i])) << i;
  EXPECT_EQ(read[2], 0.0F) << "what does not move tells nothing";

  const Floats before = weights;
  local.adopt(*mine, Floats{before[0] - 0.25F, before[1] - 0.25F, before[2]}, 0.5);
  EXPECT_NEAR(local.estimate()[0], 0.1F * 0.25F / 0.25F - 0.2F * before[0], 1e-5);
  EXPECT_NEAR(local.estimate()[1], 0.1F * 0.25F / 0.5F, 1e-5);
  EXPECT_EQ(local.estimate()[2], 0.0F);
}

TEST(LocalStep, FollowingAdamGathersItsMomentsFromTheOwnGradients) {
  const OptimizerOptions rule{.kind = "adamw", .lr = 0.1};
  const auto mine = make_optimizer(rule, 1), alone = make_optimizer(rule, 1);
  LocalStep local(0.0, Floats{1}, 4);
  Floats weights{1}, other{1};
  for (float g : {1.0F, -3.0F, 0.5F}) {
    local.follow(*mine, weights, Floats{g}, Floats{7});
    alone->step(other, Floats{g}, 1.0F, 4);
    EXPECT_EQ(weights, Floats{7}) << "the weights are the servers'";
  }
  EXPECT_EQ(mine->momentum()[0], alone->momentum()[0]);
}

}  // namespace
}  // namespace slipstream
