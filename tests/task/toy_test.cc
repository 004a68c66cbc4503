// SPDX-License-Identifier: Apache-2.0
#include "task/toy.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

namespace slipstream {
namespace {

std::size_t count_of(const ToyTask& task) {
  std::size_t count = 0;
  for (const Parameter& p : task.parameters()) count += p.count;
  return count;
}

// The largest difference between the gradient and central differences of the loss.
double gradient_error(const ToyTask& task, int rank, std::int64_t t) {
  std::vector<float> weights(count_of(task)), grads(weights.size()), ignored(weights.size());
  task.init(weights, 3);
  task.gradient(weights, grads, rank, t);
  double worst = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float kept = weights[i];
    weights[i] = kept + 0x1p-8F;
    const double above = task.gradient(weights, ignored, rank, t);
    weights[i] = kept - 0x1p-8F;
    const double below = task.gradient(weights, ignored, rank, t);
    weights[i] = kept;
    worst = std::max(worst, std::abs((above - below) / 0x1p-7 - grads[i]));
  }
  return worst;
}

TEST(Toy, TheQuadraticsGradientIsThatOfItsLoss) {
  EXPECT_LT(gradient_error(QuadraticTask({.layers = {4, 0, 1, 9}, .noise = 0.0}), 2, 5), 1e-5);
}

TEST(Toy, TheMlpsGradientIsThatOfItsLoss) { EXPECT_LT(gradient_error(MlpTask(), 1, 7), 1e-4); }

TEST(Toy, LayersMayBeEmpty) {
  const QuadraticTask task({.layers = {0, 1, 0, 2}});
  EXPECT_EQ(task.parameters().size(), 4U);
  EXPECT_EQ(count_of(task), 3U);
  const QuadraticTask nothing({.layers = {0}});
  EXPECT_EQ(nothing.gradient({}, {}, 0, 0), 0.0);
}

TEST(Toy, RanksAndStepsHaveDataOfTheirOwnUnlessToldOtherwise) {
  for (bool same : {false, true}) {
    const QuadraticTask quadratic({.same_data = same});
    const MlpTask mlp({.same_data = same});
    for (const ToyTask* task : {static_cast<const ToyTask*>(&quadratic), static_cast<const ToyTask*>(&mlp)}) {
      std::vector<float> weights(count_of(*task)), first(weights.size()), again(weights), other(weights),
          later(weights);
      task->init(weights, 1);
      const double loss = task->gradient(weights, first, 0, 4);
      EXPECT_EQ(loss, task->gradient(weights, again, 0, 4));
      EXPECT_EQ(first, again);
      task->gradient(weights, other, 1, 4);
      EXPECT_EQ(first == other, same);
      task->gradient(weights, later, 0, 5);
      EXPECT_NE(first, later);
    }
  }
}

TEST(Toy, DescentFindsTheQuadraticsTarget) {
  const QuadraticTask task({.layers = {7}, .noise = 0.0});
  std::vector<float> weights(7), grads(7);
  task.init(weights, 1);
  for (int t = 0; t < 200; ++t) {
    task.gradient(weights, grads, 3, t);
    for (std::size_t j = 0; j < 7; ++j) weights[j] -= 0.5F * grads[j];
  }
  for (std::size_t j = 0; j < 7; ++j) EXPECT_NEAR(weights[j], task.target(3, j), 1e-5);
}

TEST(Toy, DescentTeachesTheMlp) {
  const MlpTask task;
  std::vector<float> weights(count_of(task)), grads(weights.size());
  task.init(weights, 1);
  const double before = task.gradient(weights, grads, 0, 0);
  double after = 0.0;
  for (int t = 1; t <= 200; ++t) {
    after = task.gradient(weights, grads, 0, t);
    for (std::size_t j = 0; j < weights.size(); ++j) weights[j] -= 0.3F * grads[j];
  }
  EXPECT_LT(after, 0.2 * before);
}

TEST(Toy, RefusesAnMlpWithoutUnits) { EXPECT_THROW(MlpTask({.hidden = 0}), ConfigError); }

}  // namespace
}  // namespace slipstream
