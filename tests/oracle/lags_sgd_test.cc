// SPDX-License-Identifier: Apache-2.0
#include "strategy/lags_sgd.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "oracle/lags_sgd_oracle.h"
#include "oracle/simulated.h"

namespace slipstream::oracle {
namespace {

constexpr std::int64_t kSteps = 40;
constexpr std::size_t kSize = Problem{}.size;

// The problem's layers are, from the front, of 4, 1, 0 and 6 elements. What is clipped is clipped layer by layer.
std::vector<Layer> apart(std::size_t k4, std::size_t k6) { return {{0, 4, k4}, {4, 1, 1}, {5, 6, k6}}; }

Course oracle(const Rule& rule, int workers, const std::vector<Layer>& groups) {
  return lags_sgd({}, rule, workers, kSteps, apart(0, 0), [&](std::int64_t) { return groups; });
}

std::vector<std::string> fixed(double density, int merge_elements) {
  return {"adaptive=false", fmt::format("density={}", density), "max_density=1",
          fmt::format("merge_elements={}", merge_elements)};
}

TEST(LagsSgdOracle, EveryStepOfEveryRankIsThePapers) {
  for (int workers : {1, 2, 3, 4, 7}) {
    for (const auto& [name, rule] : rules()) {
      SCOPED_TRACE(fmt::format("{}, P={}", name, workers));
      const auto run = [&](double density, int merge) {
        return simulate({}, rule, workers, kSteps, "lags", fixed(density, merge));
      };
      EXPECT_LT(distance(run(0.1, 0), oracle(rule, workers, apart(1, 1))), kRounding);
      EXPECT_LT(distance(run(0.5, 0), oracle(rule, workers, apart(2, 3))), kRounding);
      EXPECT_LT(distance(run(0.4, 5), oracle(rule, workers, {{0, 5, 2}, {5, 6, 2}})), kRounding) << "6 | 0 1 4";
    }
  }
}

// The defaults: dense steps until there is a plan; the simulated link is fast, so that the plan is dense, too.
TEST(LagsSgdOracle, TheDefaultsOnAFastLinkAreDense) {
  for (int workers : {1, 2, 3, 7}) {
    for (const auto& [name, rule] : rules()) {
      EXPECT_LT(distance(simulate({}, rule, workers, kSteps, "lags"), oracle(rule, workers, apart(4, 6))), kRounding)
          << name << ", P=" << workers;
    }
  }
}

TEST(LagsSgdOracle, OraclesTellRulesApart) {
  const Rule rule{.lr_decay = 0.1, .momentum = 0.9};
  const Course run = oracle(rule, 3, apart(1, 2));
  EXPECT_GT(distance(run, oracle(rule, 3, apart(1, 1))), 100 * kRounding);
  EXPECT_GT(distance(run, oracle(Rule{.lr_decay = 0.1}, 3, apart(1, 2))), 100 * kRounding);
  EXPECT_GT(distance(run, oracle(rule, 3, {{0, kSize, 4}})), 100 * kRounding);
}

// LAGS-2: the weights, less what all still owe, are where plain SGD on the same gradients would be.
TEST(LagsSgd, TheVirtualIterateIsPlainSgd) {
  for (int workers : {1, 2, 3, 7}) {
    const Books books = keep_books({}, {.lr_decay = 0.1}, workers, kSteps, "lags", fixed(0.2, 0), true);
    EXPECT_LT(books.imbalance(), 1e-6) << "P=" << workers;
    EXPECT_GT(books.at_stake(), 0.01) << "P=" << workers;
  }
}

// LAGS-3
TEST(LagsSgd, SendingEverythingEqualsSyncSgdToRounding) {
  for (const auto& [name, rule] : lasting_rules()) {
    for (int workers : {1, 2, 3, 7}) {
      const Course run = simulate({}, rule, workers, kSteps, "lags", fixed(1, 0));
      EXPECT_LT(distance(run, simulate({}, rule, workers, kSteps, "ssgd")), kRounding) << name << ", P=" << workers;
    }
  }
}

// LAGS-4
TEST(LagsSgd, OneLayerThatHoldsEverythingIsTopkBitForBit) {
  for (const auto& [name, rule] : rules()) {
    if (rule.clip_norm > 0) continue;  // lags clips layer by layer
    for (int workers : {1, 2, 3, 7}) {
      const Course run = simulate({}, rule, workers, kSteps, "lags", fixed(0.3, 1000));
      EXPECT_EQ(run, simulate({}, rule, workers, kSteps, "topk", {"density=0.3"})) << name << ", P=" << workers;
    }
  }
}

// LAGS-5
TEST(LagsSgd, ReplicasAreBitIdenticalAfterEveryStep) {
  for (const char* adaptive : {"adaptive=true", "adaptive=false"}) {
    for (int workers : {2, 3, 7}) {
      const Course run = simulate({}, Rule{.momentum = 0.9}, workers, kSteps, "lags", {adaptive, "density=0.2"});
      for (const Ranks& step : run.steps) {
        for (const Vec& w : step) EXPECT_EQ(w, step[0]) << adaptive << ", P=" << workers;
      }
    }
  }
}

// LAGS-7
TEST(LagsSgd, GroupsDoNotMatterWhenEverythingIsSent) {
  const Rule rule{.momentum = 0.9, .weight_decay = 0.01};
  for (int workers : {1, 2, 3, 7}) {
    const Course one_by_one = simulate({}, rule, workers, kSteps, "lags", fixed(1, 0));
    for (int merge : {2, 6, 7, 1000}) {
      EXPECT_LT(distance(one_by_one, simulate({}, rule, workers, kSteps, "lags", fixed(1, merge))), kRounding);
    }
  }
}

// Going dense and back again loses nothing either: a job whose link becomes fast and slow again.
TEST(LagsSgd, PlansThatChangeKeepTheBooks) {
  SimJobOptions job;
  job.world.ranks = 3;
  job.world.link = {1e-6, 1e9};
  job.world.faults = {Fault::slow_rank(1, 1e6, FaultPoint::at_step(14), FaultPoint::at_step(24))};
  job.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {400, 3000, 600}});
  job.make_strategy = Registry::builtin().configure("lags", {"density=0.02", "replan_every=8"}).make;
  job.optimizer = {.lr = 0.1};
  job.steps = 40;
  const SimJobResult result = run_sim_job(job);
  ASSERT_TRUE(result.agreement()) << result.ranks[0].outcome.error;
  std::vector<std::string> plans;
  for (const SimStepRecord& step : result.ranks[0].steps) {
    if (!step.news.empty()) plans.push_back(step.news);
  }
  ASSERT_EQ(plans.size(), 3U) << fmt::format("{}", fmt::join(plans, "\n"));
  EXPECT_NE(plans[0].find("dense"), std::string::npos) << plans[0];
  EXPECT_EQ(plans[1].find("dense"), std::string::npos) << plans[1];
  EXPECT_NE(plans[2].find("dense"), std::string::npos) << plans[2];
  EXPECT_GT(result.ranks[0].steps[15].bytes_sent, 5 * result.ranks[0].steps[22].bytes_sent);
  EXPECT_EQ(result.ranks[0].steps[15].bytes_sent, result.ranks[0].steps[38].bytes_sent);
}

}  // namespace
}  // namespace slipstream::oracle
