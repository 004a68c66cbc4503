// SPDX-License-Identifier: Apache-2.0
#include "correction/error_feedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace slipstream {
namespace {

std::vector<float> random_vector(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-31F;
  return values;
}

TEST(ErrorFeedback, WithoutMomentumSentAndResidualAreTheAccumulatedValueBitForBit) {
  ErrorFeedback owed(100, 0.0);
  std::vector<float> total(100);
  Sparse sent;
  for (std::uint32_t t = 0; t < 20; ++t) {
    owed.begin_step();
    const auto g = random_vector(100, t);
    for (std::size_t i = 0; i < 100; ++i) total[i] += 0.5F * g[i];
    owed.take(0, g, {.factor = 0.5F}, 7, sent);
    for (std::size_t j = 0; j < sent.indices.size(); ++j) {
      EXPECT_EQ(sent.values[j], total[sent.indices[j]]);
      EXPECT_EQ(owed.residual()[sent.indices[j]], 0.0F);
      total[sent.indices[j]] = 0.0F;
    }
    for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(owed.residual()[i], total[i]);
  }
}

// With m = 0.5 and what is owed as 2 g: an entry sent in every step gives half, one that waited a steps 1 - 0.5^((a+1)/2).
TEST(ErrorFeedback, WhatIsSentDependsOnHowLongAnEntryWaited) {
  ErrorFeedback owed(2, 0.5);
  Sparse sent;
  for (int t = 0; t < 6; ++t) {
    owed.begin_step();
    owed.take(0, std::vector<float>{100, 0.125F}, {.factor = 2}, 1, sent);
    ASSERT_EQ(sent.indices, std::vector<std::uint32_t>{0});
  }
  EXPECT_NEAR(sent.values[0], 0.5 * (200 * (2 - std::pow(0.5, 5))), 1e-3) << "the velocity of heavy-ball SGD";
  owed.begin_step();
  owed.take(0, std::vector<float>{0, 1000}, {.factor = 2}, 1, sent);
  ASSERT_EQ(sent.indices, std::vector<std::uint32_t>{1});
  EXPECT_NEAR(sent.values[0], (1 - std::pow(0.5, 4)) * (6 * 0.25 + 2000), 1e-2) << "it waited for 7 steps";
}

TEST(ErrorFeedback, AnAgeBeyondAByteIsOldAndNotYoung) {
  for (const int steps : {100, 255, 256, 257, 320, 1000}) {
    ErrorFeedback owed(1, 0.9);
    for (int t = 0; t < steps; ++t) owed.begin_step();
    EXPECT_GT(owed.share(0), 0.99F) << steps;
  }
}

TEST(ErrorFeedback, ALayerThatTurnsWholeGivesWhatItOwesOverSomeSteps) {
  for (const double momentum : {0.0, 0.9}) {
    ErrorFeedback owed(1, momentum);
    owed.residual()[0] = 100;
    for (int t = 0; t < 50; ++t) owed.begin_step();
    double given = 0;
    for (int t = 0; t < 10; ++t) {
      owed.begin_step();
      std::vector<float> g{0};
      owed.take_all(0, g, {.factor = 1});
      EXPECT_NEAR(g[0], 10 * std::pow(0.9, t), 1e-4) << t;
      given += g[0];
    }
    EXPECT_NEAR(given + owed.residual()[0], 100, 1e-4);
  }
}

TEST(ErrorFeedback, WithoutMomentumALayerThatIsAlwaysWholeGivesItsGradientBitForBit) {
  ErrorFeedback owed(3000, 0.0);
  for (std::uint32_t t = 0; t < 3; ++t) {
    owed.begin_step();
    const auto g = random_vector(3000, t);
    auto sent = g;
    owed.take_all(0, sent, {.factor = 0.3F});
    for (std::size_t i = 0; i < g.size(); ++i) ASSERT_EQ(sent[i], 0.3F * g[i]);
  }
}

struct Copy final : StateVisitor {
  bool restore = false;
  std::map<std::string, std::vector<float>> held;
  void floats(std::string_view name, std::span<float> values) override {
    if (!restore) held[std::string(name)].assign(values.begin(), values.end());
    if (restore) std::copy_n(held.at(std::string(name)).begin(), values.size(), values.begin());
  }
  void integer(std::string_view, std::int64_t&) override {}
};

TEST(ErrorFeedback, GoesOnAsBeforeAfterARestoreAtAnotherStepNumber) {
  ErrorFeedback first(50, 0.9), second(50, 0.9);
  Sparse a, b;
  for (std::uint32_t t = 0; t < 300; ++t) {
    first.begin_step();
    first.take(0, random_vector(50, t), {.factor = 1}, 5, a);
  }
  Copy copy;
  first.visit(copy);
  copy.restore = true;
  second.visit(copy);
  for (std::uint32_t t = 300; t < 320; ++t) {
    first.begin_step();
    second.begin_step();
    first.take(0, random_vector(50, t), {.factor = 1}, 5, a);
    second.take(0, random_vector(50, t), {.factor = 1}, 5, b);
    EXPECT_EQ(a.indices, b.indices);
    EXPECT_EQ(a.values, b.values);
  }
}

}  // namespace
}  // namespace slipstream
