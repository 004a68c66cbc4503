// SPDX-License-Identifier: Apache-2.0
#include "strategy/lags_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "codec/topk.h"
#include "sim/sim_world.h"

namespace slipstream {
namespace {

constexpr std::size_t kCount = 5000, kSent = 250;
constexpr int kRanks = 3;

// What a worker has before it sends; `common` of it is the same on all workers.
std::vector<float> memory(int rank, double common) {
  Rng shared(1), own(static_cast<std::uint64_t>(rank) + 2);
  std::vector<float> values(kCount);
  for (float& x : values) x = static_cast<float>(common * shared.normal() + (1 - common) * own.normal());
  return values;
}

double exact_delta(double common) {
  std::vector<double> left(kCount), had(kCount);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<float> values = memory(rank, common);
    for (std::size_t i = 0; i < kCount; ++i) had[i] += values[i];
    for (const std::uint32_t i : topk_reference(values, kSent).indices) values[i] = 0;
    for (std::size_t i = 0; i < kCount; ++i) left[i] += values[i];
  }
  double squares_left = 0, squares_had = 0;
  for (std::size_t i = 0; i < kCount; ++i) squares_left += left[i] * left[i], squares_had += had[i] * had[i];
  return squares_left / ((1.0 - static_cast<double>(kSent) / kCount) * squares_had);
}

std::vector<std::vector<LagsFigures>> sample(double common) {
  std::vector<std::vector<LagsFigures>> by_rank(kRanks);
  SimWorldOptions options;
  options.ranks = kRanks;
  for (const RankOutcome& outcome : SimWorld(options).run([&](SimPort& port) {
         std::vector<float> owed = memory(port.rank(), common);
         Sparse sent;
         TopK().take(owed, kSent, sent);
         LagsStatistics statistics;
         statistics.note("first", owed, sent, 100.0 * (1 + port.rank()), port.rank());
         statistics.note("second", owed, sent, 0.0, -1);
         EXPECT_TRUE(statistics.take().empty()) << "nothing is on the wire yet";
         statistics.start(port);
         by_rank[static_cast<std::size_t>(port.rank())] = statistics.take();
         EXPECT_TRUE(statistics.take().empty()) << "it is told once";
       })) {
    EXPECT_TRUE(outcome.finished()) << outcome.error;
  }
  return by_rank;
}

TEST(LagsStatistics, DeltaIsThePapersRatioToATenthOrSo) {
  for (const double common : {0.0, 0.5, 1.0}) {
    const auto figures = sample(common)[0];
    ASSERT_EQ(figures.size(), 2U);
    EXPECT_NEAR(figures[0].delta, exact_delta(common), 0.15 * exact_delta(common)) << common;
  }
  EXPECT_LT(exact_delta(1.0), 0.9) << "the largest entries are more than random ones";
}

TEST(LagsStatistics, OwedAndAgeAreMeansOverTheWorkers) {
  double squares = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<float> owed = memory(rank, 0.5);
    Sparse sent;
    TopK().take(owed, kSent, sent);
    for (const float x : owed) squares += static_cast<double>(x) * x;
  }
  const auto figures = sample(0.5)[0];
  EXPECT_NEAR(figures[0].owed, std::sqrt(squares / 600.0), 1e-3);
  EXPECT_FLOAT_EQ(static_cast<float>(figures[0].age), 1.0F);
  EXPECT_EQ(figures[1].owed, 0.0) << "no gradient: no ratio";
  EXPECT_LT(figures[1].age, 0.0);
}

TEST(LagsStatistics, AllRanksHoldTheSameFigures) {
  const auto by_rank = sample(0.3);
  for (const auto& figures : by_rank) EXPECT_EQ(describe(figures), describe(by_rank[0]));
  EXPECT_EQ(by_rank[1][0].delta, by_rank[2][0].delta);
}

TEST(LagsStatistics, AreToldInOneLine) {
  EXPECT_EQ(describe({{"fc1 … fc2", 0.876, 12.34, 30.4}, {"conv", 0.5, 2, -1}}),
            "memory: [fc1 … fc2: delta 0.88, owes 12.3 gradients, sent after 30.4 steps] "
            "[conv: delta 0.50, owes 2 gradients]");
}

}  // namespace
}  // namespace slipstream
