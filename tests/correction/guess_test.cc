// SPDX-License-Identifier: Apache-2.0
#include "correction/guess.h"

#include <gtest/gtest.h>

#include <array>

namespace slipstream {
namespace {

using Floats = std::vector<float>;

Floats floats(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST(Guess, IsTheServersRuleAppliedToTheOwnGradient) {
  const Floats weights{1, 2, 3}, grads{4, 8};
  Floats out(2);
  Guess off(Guess::Kind::kOff, {}, weights);
  off.predict(1, grads, 0.5, out);
  EXPECT_EQ(out, (Floats{2, 3}));
  Guess plain(Guess::Kind::kPlain, {.momentum = 0.9, .weight_decay = 0.25}, weights);
  plain.predict(1, grads, 0.5, out);
  EXPECT_EQ(out, (Floats{2 - 0.5F * (4 + 0.5F), 3 - 0.5F * (8 + 0.75F)}));
}

TEST(Guess, IsMadeFromTheTruthNotFromTheLastGuess) {
  Guess guess(Guess::Kind::kPlain, {.momentum = 0.0}, Floats{1});
  Floats out(1);
  for (int i = 0; i < 3; ++i) guess.predict(0, Floats{2}, 0.25, out);
  EXPECT_EQ(out, Floats{0.5});
  guess.learn(0, Floats{7}, 0.25);
  EXPECT_EQ(floats(guess.known()), Floats{7});
  guess.predict(0, Floats{2}, 0.25, out);
  EXPECT_EQ(out, Floats{6.5});
}

// It follows an optimizer whose velocity it never sees, also where each weight has a rate and a decay of its own.
TEST(Guess, ReadsTheVelocityOffTheWeightsMovement) {
  GroupMap map;
  map.append(1, 0);
  map.append(1, 1);
  for (int form = 0; form < 4; ++form) {
    const bool nesterov = form % 2 == 1, grouped = form >= 2;
    OptimizerOptions rule{.lr = 0.1, .momentum = 0.9, .nesterov = nesterov, .weight_decay = 0.01};
    if (grouped) rule.groups = {{.lr_factor = 0.5}, {.weight_decay = 0.25}};
    Floats weights{1.0F, -2.0F}, out(2);
    const GroupMap& groups = grouped ? map : GroupMap();
    const auto server = make_optimizer(rule, weights.size(), OptimizerUse::kSteps, groups);
    Guess guess(Guess::Kind::kMomentum, rule, weights, groups);
    for (int t = 0; t < 20; ++t) {
      const double lr = 0.1 / (1 + 0.2 * t);
      const Floats grads{0.3F * static_cast<float>(t % 4) - 0.4F, 0.2F};
      guess.predict(0, grads, lr, out);
      server->set_lr(lr);
      server->step(weights, grads);
      for (std::size_t j = 0; j < 2; ++j) EXPECT_NEAR(out[j], weights[j], 2e-6) << "step " << t;
      guess.learn(0, weights, lr);
    }
  }
}

TEST(Guess, KeepsItsVelocityWhereNothingMoved) {
  Guess guess(Guess::Kind::kMomentum, {.momentum = 0.5}, Floats{1});
  guess.learn(0, Floats{0.5}, 0.25);  // velocity 2
  guess.learn(0, Floats{0.5}, 0.0);   // a rate of 0 moves nothing and tells nothing
  Floats out(1);
  guess.predict(0, Floats{0}, 0.25, out);
  EXPECT_EQ(out, Floats{0.25});
}

}  // namespace
}  // namespace slipstream
