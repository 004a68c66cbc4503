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

// The problem's layers are, from the front, of 4, 1, 0 and 6 elements.
std::vector<Layer> apart(std::size_t k4, std::size_t k6) { return {{0, 4, k4}, {4, 1, 1}, {5, 6, k6}}; }

std::vector<std::string> fixed(double density, int merge_elements, const char* more = "momentum=after") {
  return {"adaptive=false", fmt::format("density={}", density), "max_density=1",
          fmt::format("merge_elements={}", merge_elements), more};
}

TEST(LagsSgdOracle, EveryStepOfEveryRankIsThePapers) {
  for (int workers : {1, 2, 3, 4, 7}) {
    for (const auto& [name, rule] : rules()) {
      SCOPED_TRACE(fmt::format("{}, P={}", name, workers));
      EXPECT_LT(distance(simulate({}, rule, workers, kSteps, "lags", fixed(0.1, 0)),
                         lags_sgd({}, rule, workers, kSteps, apart(1, 1))),
                kRounding);
      EXPECT_LT(distance(simulate({}, rule, workers, kSteps, "lags", fixed(0.5, 0)),
                         lags_sgd({}, rule, workers, kSteps, apart(2, 3))),
                kRounding);
      EXPECT_LT(distance(simulate({}, rule, workers, kSteps, "lags", fixed(0.4, 5)),  // 6 | 0 1 4
                         lags_sgd({}, rule, workers, kSteps, {{0, 5, 2}, {5, 6, 2}})),
                kRounding);
    }
  }
}

TEST(LagsSgdOracle, WithTheRateInsideTheMemoryItIsThePapersTheory) {
  for (int workers : {1, 2, 3, 7}) {
    for (const auto& [name, rule] : rules()) {
      EXPECT_LT(distance(simulate({}, rule, workers, kSteps, "lags", fixed(0.4, 0, "lr_inside=true")),
                         lags_sgd({}, rule, workers, kSteps, apart(1, 2), true)),
                kRounding)
          << name << ", P=" << workers;
    }
  }
}

TEST(LagsSgdOracle, OraclesTellRulesApart) {
  const Rule rule{.lr_decay = 0.1, .momentum = 0.9};
  const Course run = lags_sgd({}, rule, 3, kSteps, apart(1, 2));
  EXPECT_GT(distance(run, lags_sgd({}, rule, 3, kSteps, apart(1, 1))), 100 * kRounding);
  EXPECT_GT(distance(run, lags_sgd({}, rule, 3, kSteps, apart(1, 2), true)), 100 * kRounding);
  EXPECT_GT(distance(run, lags_sgd({}, rule, 3, kSteps, {{0, kSize, 4}})), 100 * kRounding);
}

// LAGS-2: the weights, less what all still owe, are where plain SGD on the same gradients would be.
TEST(LagsSgd, TheVirtualIterateIsPlainSgd) {
  for (int workers : {1, 2, 3, 7}) {
    const Problem problem;
    const Rule rule{.lr_decay = 0.1};
    SimJobOptions job;
    Ranks weights(static_cast<std::size_t>(kSteps));  // of rank 0, by step
    job.world.ranks = workers;
    job.task = std::make_shared<ProblemTask>(problem);
    job.make_strategy = Registry::builtin().configure("lags", fixed(0.2, 0, "lr_inside=true")).make;
    job.optimizer = optimizer_of(rule);
    job.lr = [rule](std::int64_t t) { return rule.lr_at(t); };
    job.steps = kSteps + 1;
    job.stop_after = kSteps;
    job.on_step_end = [&](int rank, std::int64_t t, std::span<const float> w) {
      if (rank == 0) weights[static_cast<std::size_t>(t)].assign(w.begin(), w.end());
    };
    const SimJobResult result = run_sim_job(job);
    Vec expected = problem.start(), w = problem.start();
    for (std::int64_t t = 0; t < kSteps; ++t) {
      for (int p = 0; p < workers; ++p) {
        const Vec g = problem.gradient(w, p, t);
        for (std::size_t j = 0; j < kSize; ++j) expected[j] -= rule.lr_at(t) * g[j] / workers;
      }
      w = weights[static_cast<std::size_t>(t)];
    }
    ASSERT_TRUE(result.saved.has_value());
    double still_owed = 0;
    for (const StateArchive& state : result.saved->ranks) {
      const auto& residual = std::get<std::vector<float>>(state.entries().at("strategy/residual"));
      for (std::size_t j = 0; j < kSize; ++j) {
        w[j] -= static_cast<double>(residual[j]) / workers;
        still_owed += std::abs(residual[j]);
      }
    }
    EXPECT_LT(distance(Ranks{w}, Ranks{expected}), 1e-6) << "P=" << workers;
    EXPECT_GT(still_owed, 0.01) << "or the claim would be empty";
  }
}

// LAGS-3
TEST(LagsSgd, SendingEverythingEqualsSyncSgdToRounding) {
  for (const auto& [name, rule] : rules()) {
    for (int workers : {1, 2, 3, 7}) {
      const Course run = simulate({}, rule, workers, kSteps, "lags", fixed(1, 0));
      EXPECT_LT(distance(run, simulate({}, rule, workers, kSteps, "ssgd")), kRounding) << name << ", P=" << workers;
    }
  }
}

// LAGS-4
TEST(LagsSgd, OneLayerThatHoldsEverythingIsTopkBitForBit) {
  for (const auto& [name, rule] : rules()) {
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
