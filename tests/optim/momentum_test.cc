// SPDX-License-Identifier: Apache-2.0
#include "optim/momentum.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

TEST(MomentumOf, IsTheVelocityOfSgdAndTheFirstMomentOfAdam) {
  std::vector<float> w = {1, 2}, g = {4, 8};
  const auto sgd = make_optimizer({.kind = "sgd", .momentum = 0.5}, 2);
  sgd->step(w, g);
  EXPECT_EQ(momentum_of(*sgd)[1], 8);
  for (const char* kind : {"adam", "adamw"}) {
    const auto adam = make_optimizer({.kind = kind, .beta1 = 0.75}, 2);
    adam->step(w, g);
    EXPECT_EQ(momentum_of(*adam)[1], 2) << kind;
  }
}

TEST(MomentumOf, IsEmptyWhereThereIsNone) {
  EXPECT_TRUE(momentum_of(*make_optimizer({.kind = "sgd", .momentum = 0}, 2)).empty());
}

}  // namespace
}  // namespace slipstream
