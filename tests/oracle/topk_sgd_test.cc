// SPDX-License-Identifier: Apache-2.0
#include "strategy/topk_sgd.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include "oracle/simulated.h"
#include "oracle/sync_sgd_oracle.h"
#include "oracle/topk_sgd_oracle.h"

namespace slipstream::oracle {
namespace {

constexpr std::int64_t kSteps = 40;
constexpr std::size_t kSize = Problem{}.size;

// A density that selects k of the problem's elements.
std::string density(std::size_t k) {
  return fmt::format("density={}", (static_cast<double>(k) + 0.5) / static_cast<double>(kSize));
}

TEST(TopkSgdOracle, EveryStepOfEveryRankIsThePapers) {
  for (int workers : {1, 2, 3, 4, 7}) {
    for (const auto& [name, rule] : direction_rules()) {
      for (std::size_t k : {1, 3, 10}) {
        const Course run = simulate({}, rule, workers, kSteps, "topk", {density(k)});
        EXPECT_LT(distance(run, topk_sgd({}, rule, workers, kSteps, k)), kRounding)
            << name << ", P=" << workers << ", k=" << k;
      }
    }
  }
}

TEST(TopkSgdOracle, OraclesTellRulesApart) {
  const Rule rule{.momentum = 0.9};
  const Course run = topk_sgd({}, rule, 3, kSteps, 3);
  EXPECT_GT(distance(run, topk_sgd({}, rule, 3, kSteps, 2)), 100 * kRounding);
  EXPECT_GT(distance(run, topk_sgd({}, {.momentum = 0.5}, 3, kSteps, 3)), 100 * kRounding);
  EXPECT_GT(distance(run, sync_sgd({}, rule, 3, kSteps)), 100 * kRounding);
}

TEST(TopkSgd, SendingEverythingEqualsSyncSgdToRounding) {
  for (const auto& [name, rule] : lasting_rules()) {
    for (int workers : {1, 2, 3, 7}) {
      const Course run = simulate({}, rule, workers, kSteps, "topk", {"density=1"});
      EXPECT_LT(distance(run, simulate({}, rule, workers, kSteps, "ssgd")), kRounding) << name << ", P=" << workers;
    }
  }
}

// Nothing is lost: the weights, less what is still owed, are where plain SGD on the same gradients would be.
TEST(TopkSgd, WhatIsNotSentIsOwed) {
  for (const char* wire : {"wire=fp32", "wire=fp16", "wire=bf16"}) {
    for (int workers : {1, 2, 3, 7}) {
      const Books books = keep_books({}, {}, workers, kSteps, "topk", {density(2), wire}, true);
      EXPECT_LT(books.imbalance(), kRounding) << wire << ", P=" << workers;
      EXPECT_GT(books.at_stake(), 0.01) << wire << ", P=" << workers;
    }
  }
}

TEST(TopkSgd, TheDensityFallsByAFactorOfFourInEachQuarterOfItsWarmup) {
  SparseOptions options{.density = 0.001, .density_warmup = 40};
  for (const auto& [t, entries] : std::vector<std::pair<std::int64_t, std::size_t>>{
           {0, 25000}, {9, 25000}, {10, 6250}, {20, 1562}, {30, 390}, {39, 390}, {40, 100}, {1000, 100}}) {
    EXPECT_EQ(options.entries(100'000, t), entries) << t;
  }
  EXPECT_EQ(options.entries(3, 100), 1U) << "at least one of any";
}

}  // namespace
}  // namespace slipstream::oracle
