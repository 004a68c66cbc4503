// SPDX-License-Identifier: Apache-2.0
#include "strategy/auto_sgd.h"

#include <gtest/gtest.h>

#include "kit/fixed_chooser.h"
#include "kit/sim.h"
#include "plan/plan_chooser.h"

namespace slipstream::test {
namespace {

// A link on which dense sums take several times as long as computing, and lists next to nothing.
SimJobOptions auto_job(const Chooser& chooser, const std::vector<std::string>& set, std::int64_t steps) {
  SimJobOptions job = sim_job({"auto", set}, 3, steps);
  job.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {4000, 50, 3000, 1}});
  job.world.link = {0.0005, 200'000.0};
  job.optimizer = {.lr = 0.02, .momentum = 0.9};
  job.lr = {};
  job.chooser = &chooser;
  return job;
}

std::string told(const SimRankResult& rank) {
  std::string all;
  for (const StepRecord& step : rank.steps) all += step.news.empty() ? "" : fmt::format("{}: {}\n", step.t, step.news);
  return all;
}

TEST(AutoSgd, SwitchesAtTheSameStepOnAllRanksAndTellsWhy) {
  const FixedChooser chooser("topk");
  const auto result = run_sim_job(auto_job(chooser, {"measure_steps=6", "try_steps=10"}, 40));
  ASSERT_TRUE(result.agreement());
  for (const SimRankResult& rank : result.ranks) {
    EXPECT_GT(rank.steps[5].bytes_sent, 20'000) << "the last dense step";
    EXPECT_LT(rank.steps[6].bytes_sent, 5'000) << "the first of topk";
    EXPECT_LT(rank.steps[39].bytes_sent, 5'000);
    EXPECT_NE(rank.steps[5].news.find("chose topk: the test wants it"), std::string::npos) << told(rank);
    EXPECT_LT(rank.steps[30].seconds, 0.5 * rank.steps[4].seconds);
  }
  ASSERT_EQ(chooser.asked.size(), 1U) << "rank 0 alone is asked";
  EXPECT_EQ(chooser.asked[0].workers, 3);
  EXPECT_FALSE(chooser.asked[0].local);
  EXPECT_GT(chooser.asked[0].dense_step_s, 0.05);
  ASSERT_EQ(chooser.asked[0].compute_s.size(), 4U);
}

TEST(AutoSgd, GoesBackToDenseStepsWhereTheGainIsNotReal) {
  const FixedChooser chooser("lags:adaptive=false,density=1");  // as many bytes, and two optimizers
  const auto result = run_sim_job(auto_job(chooser, {"measure_steps=6", "try_steps=10"}, 30));
  ASSERT_TRUE(result.agreement());
  for (const SimRankResult& rank : result.ranks) {
    EXPECT_NE(rank.steps[15].news.find("back to ssgd"), std::string::npos) << told(rank);
  }
}

TEST(AutoSgd, StaysDenseWhereThePlanSaysSoOrNobodyPlans) {
  const FixedChooser dense("ssgd");
  auto job = auto_job(dense, {"measure_steps=6"}, 20);
  const auto stayed = run_sim_job(job);
  job.chooser = nullptr;
  const auto alone = run_sim_job(job);
  job.make_strategy = Registry::builtin().configure("ssgd", {}).make;
  const auto usual = run_sim_job(job);
  expect_same_weights(stayed, usual);
  expect_same_weights(alone, usual);
}

TEST(AutoSgd, MeasuresAgainWhereTheLinkChanges) {
  const FixedChooser chooser("topk");
  auto job = auto_job(chooser, {"measure_steps=6", "try_steps=8", "watch_steps=10"}, 60);
  job.world.faults = {Fault::slow_rank(1, 200.0, FaultPoint::at_step(25), FaultPoint::at_step(1000))};
  const auto result = run_sim_job(job);
  ASSERT_TRUE(result.agreement());
  EXPECT_EQ(chooser.asked.size(), 2U) << told(result.ranks[0]);
  EXPECT_NE(told(result.ranks[0]).find("measuring again"), std::string::npos);
  EXPECT_EQ(told(result.ranks[0]), told(result.ranks[2]));
}

TEST(AutoSgd, StepsThatAreLongAndShortInTurnAreNoChange) {
  const FixedChooser chooser("topk");
  auto job = auto_job(chooser, {"measure_steps=6", "try_steps=10", "watch_steps=21"}, 200);
  job.compute_seconds = 0.05;
  job.step_factors = {{1, 8}};  // an odd number of steps has more of either in turn
  const auto result = run_sim_job(job);
  ASSERT_TRUE(result.agreement());
  EXPECT_EQ(chooser.asked.size(), 1U) << told(result.ranks[0]);
}

TEST(AutoSgd, AResumedRunGoesOnWithWhatWasChosen) {
  const FixedChooser chooser("topk");
  auto job = auto_job(chooser, {"measure_steps=6", "try_steps=10"}, 30);
  const auto whole = run_sim_job(job);
  for (const std::int64_t cut : {3, 6, 7, 12, 20}) {
    auto first = job;
    first.stop_after = cut;
    const auto saved = run_sim_job(first);
    ASSERT_TRUE(saved.saved.has_value());
    auto rest = job;
    rest.resume = &*saved.saved;
    const auto resumed = run_sim_job(rest);
    ASSERT_TRUE(resumed.agreement()) << cut;
    if (cut < 6) continue;  // it measures again
    expect_same_weights(resumed, whole);
    EXPECT_LT(resumed.ranks[0].steps.front().bytes_sent, 5'000) << cut;
  }
}

TEST(AutoSgd, AdamsSecondMomentsGoAlong) {
  const FixedChooser chooser("topk:density=0.5");
  auto job = auto_job(chooser, {"measure_steps=6", "try_steps=10"}, 40);
  job.optimizer = {.kind = "adamw", .lr = 0.01};
  const auto result = run_sim_job(job);
  ASSERT_TRUE(result.agreement());
  EXPECT_LT(result.ranks[0].steps.back().loss, result.ranks[0].steps[5].loss);
}

TEST(AutoSgd, ClippedGradientsAreClippedByTheInnerStrategysRule) {
  const FixedChooser chooser("topk");
  auto job = auto_job(chooser, {"measure_steps=6", "try_steps=10"}, 30);
  job.optimizer.clip_norm = 0.5;
  EXPECT_TRUE(run_sim_job(job).agreement());
}

TEST(AutoSgd, MayAverageWhereItIsTold) {
  const FixedChooser chooser("dasgd:period=4");
  const auto result = run_sim_job(auto_job(chooser, {"may=local", "measure_steps=6", "try_steps=16"}, 50));
  ASSERT_TRUE(result.agreement());
  ASSERT_FALSE(chooser.asked.empty());
  EXPECT_TRUE(chooser.asked[0].local);
}

TEST(PlanChooser, TakesListsOnASlowLinkAndDenseStepsOnAFastOne) {
  const Registry registry = Registry::builtin();
  const PlanChooser chooser(registry, false);
  auto job = auto_job(chooser, {"measure_steps=6", "try_steps=10"}, 30);
  const auto slow = run_sim_job(job);
  ASSERT_TRUE(slow.agreement());
  EXPECT_NE(slow.ranks[0].steps[5].news.find("chose lags"), std::string::npos) << told(slow.ranks[0]);
  job.world.link = {0.000001, 1e9};
  const auto fast = run_sim_job(job);
  EXPECT_NE(fast.ranks[0].steps[5].news.find("chose ssgd"), std::string::npos) << told(fast.ranks[0]);
}

// The same figures but for the dense steps: where they took longer than bytes and computing explain, bytes cost more.
TEST(PlanChooser, TakesFewerBytesWhereDenseStepsTookLongerThanTheyShould) {
  const Registry registry = Registry::builtin();
  const PlanChooser chooser(registry, false);
  const FlatModel model({{"a", 400'000, 1}, {"b", 400'000, 1}});
  const OptimizerOptions optimizer;
  JobProfile job{model, 2, {0.010, 0.005}, 0, 0.015, {}, optimizer};
  job.link.sum = job.link.gather = {0.00001, 1.0 / 2e10};
  EXPECT_EQ(chooser.choose(job, false).strategy, "ssgd");
  job.dense_step_s = 0.030;
  EXPECT_NE(chooser.choose(job, false).strategy, "ssgd");
}

}  // namespace
}  // namespace slipstream::test
