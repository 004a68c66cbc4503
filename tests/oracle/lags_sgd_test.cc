// SPDX-License-Identifier: Apache-2.0
#include "strategy/lags_sgd.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

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
    for (const auto& [name, rule] : direction_rules()) {
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

// The groups of a plan, as it is told: "… [name … name: dense, all of 6] [name: 2 (20 %) of 10]", in backward order.
std::vector<Layer> told(const std::string& plan, std::size_t size) {
  std::vector<Layer> groups;
  std::size_t end = size;
  for (std::size_t at = plan.find(": "); (at = plan.find(": ", at + 1)) != std::string::npos;) {
    const std::size_t count = std::stoul(plan.substr(plan.find(" of ", at) + 4));
    const bool dense = plan.compare(at + 2, 5, "dense") == 0;
    end -= count;
    groups.push_back({end, count, dense ? count : std::stoul(plan.substr(at + 2))});
  }
  return groups;
}

// With its defaults, on a link that is fast, slow for a while, and fast again: dense first steps, then whatever it
// plans. The oracle follows the plans that were told, and nothing is lost when they change.
TEST(LagsSgdOracle, TheDefaultsAreThePapersThroughChangesOfThePlan) {
  const Problem problem{.size = 405};  // the stiffest element's curvature is 20
  for (const Rule& rule : {Rule{.lr = 0.005}, Rule{.lr = 0.005, .momentum = 0.9, .weight_decay = 0.01},
                           Rule{.lr = 0.005, .momentum = 0.9, .clip_norm = 5.0, .nesterov = true}}) {
    std::vector<Ranks> steps(kSteps, Ranks(3));
    SimJobOptions job;
    job.world.ranks = 3;
    job.world.link = {1e-6, 1e9};
    job.world.faults = {Fault::slow_rank(1, 1e6, FaultPoint::at_step(14), FaultPoint::at_step(24))};
    job.task = std::make_shared<ProblemTask>(problem);
    job.make_strategy = Registry::builtin().configure("lags", {"replan_every=8"}).make;
    job.optimizer = optimizer_of(rule);
    job.steps = kSteps;
    job.on_step_end = [&](int rank, std::int64_t t, std::span<const float> w) {
      steps[static_cast<std::size_t>(t)][static_cast<std::size_t>(rank)].assign(w.begin(), w.end());
    };
    const SimJobResult result = run_sim_job(job);
    ASSERT_TRUE(result.agreement()) << result.ranks[0].outcome.error;

    const std::vector<Layer> whole{{0, 4, 4}, {4, 1, 1}, {5, 400, 400}};
    std::vector<std::vector<Layer>> plans{whole};  // by step
    int sparse = 0, dense = 0;
    for (const SimStepRecord& step : result.ranks[0].steps) {
      const bool planned = step.news.starts_with("plan");
      plans.push_back(planned ? told(step.news, problem.size) : plans.back());
      if (!planned) continue;
      for (const Layer& group : plans.back()) ++(group.k == group.count ? dense : sparse);
    }
    EXPECT_GE(sparse, 1);
    EXPECT_GE(dense, 2);
    const Course oracle =
        lags_sgd(problem, rule, 3, kSteps, whole, [&](std::int64_t t) { return plans[static_cast<std::size_t>(t)]; });
    EXPECT_LT(distance({steps, steps.back()}, oracle), 2 * kRounding);
    EXPECT_GT(result.ranks[0].steps[10].bytes_sent, 5 * result.ranks[0].steps[20].bytes_sent);
    EXPECT_EQ(result.ranks[0].steps[10].bytes_sent, result.ranks[0].steps[38].bytes_sent);
  }
}

// What is noted of the memory in step 49 is told after step 50, by all ranks alike, for every sparse group.
TEST(LagsSgd, TellsHowTheMemoryDoesEveryFiftySteps) {
  for (const char* wire : {"fp32", "int8"}) {
    SimJobOptions job;
    job.world.ranks = 3;
    job.task = std::make_shared<ProblemTask>(Problem{.size = 405});
    job.make_strategy =
        Registry::builtin()
            .configure("lags", {"adaptive=false", "density=0.05", "merge_elements=0", fmt::format("wire={}", wire)})
            .make;
    job.optimizer = optimizer_of({.lr = 0.001, .momentum = 0.9});
    job.steps = 101;
    const SimJobResult result = run_sim_job(job);
    ASSERT_TRUE(result.agreement()) << result.ranks[0].outcome.error;
    for (const SimStepRecord& step : result.ranks[0].steps) {
      ASSERT_EQ(step.news.starts_with("memory: ["), step.t == 50 || step.t == 100) << step.t << ": " << step.news;
      EXPECT_EQ(step.news, result.ranks[2].steps[static_cast<std::size_t>(step.t)].news);
    }
    const std::string& told = result.ranks[0].steps[100].news;
    EXPECT_EQ(std::count(told.begin(), told.end(), '['), 2) << "the layer of one element is dense: " << told;
    const auto figure = [&](const char* name) { return std::stod(told.substr(told.find(name) + std::strlen(name))); };
    EXPECT_GT(figure("delta "), 0.05) << told;  // of the layer of 400; nothing holds it below 1 in one of 4, told last
    EXPECT_LT(figure("delta "), 1.1) << told;
    EXPECT_GT(figure("owes "), 0.5);
    EXPECT_GT(figure("sent after "), 1.0) << "at 5 % an entry waits";
    EXPECT_LT(figure("sent after "), 101.0);
  }
}

}  // namespace
}  // namespace slipstream::oracle
