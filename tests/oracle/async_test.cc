// SPDX-License-Identifier: Apache-2.0
//
// asgd, ssp and r2sp.
#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <algorithm>

#include "oracle/async_oracle.h"
#include "oracle/delayed_merge_oracle.h"
#include "oracle/simulated.h"

namespace slipstream::oracle {
namespace {

constexpr std::int64_t kSteps = 25;

// No two workers are ever ready at the same time.
std::vector<double> paces(int workers) {
  std::vector<double> all;
  for (int p = 0; p < workers; ++p) all.push_back(1.0 + 0.37 * std::fmod(1.618034 * (p + 1), 1.0) + 0.21 * p);
  return all;
}

// A job on a wire that takes no time, whose buckets are all ready at the end of a step.
SimJobOptions timed_job(const Rule& rule, int workers, const std::string& strategy,
                        const std::vector<std::string>& set = {}, int servers = 0) {
  SimJobOptions job;
  job.world.ranks = workers;
  job.world.link = {0.0, 1e30};
  job.servers = servers;
  job.task = std::make_shared<ProblemTask>(Problem{});
  job.make_strategy = Registry::builtin().configure(strategy, set).make;
  job.optimizer = optimizer_of(rule);
  job.lr = [rule](std::int64_t t) { return rule.lr_at(t); };
  job.steps = kSteps;
  job.compute_seconds = 1.0;
  job.compute_factors = paces(workers);
  job.forward_share = 1.0;
  return job;
}

Course run(SimJobOptions job) {
  const auto workers = static_cast<std::size_t>(job.world.ranks);
  Course course;
  course.steps.assign(static_cast<std::size_t>(job.steps), Ranks(workers));
  job.on_step_end = [&course](int rank, std::int64_t t, std::span<const float> weights) {
    course.steps[static_cast<std::size_t>(t)][static_cast<std::size_t>(rank)].assign(weights.begin(), weights.end());
  };
  for (const SimRankResult& rank : run_sim_job(job).ranks) {
    course.end.emplace_back(rank.weights.begin(), rank.weights.end());
  }
  return course;
}

TEST(AsynchronousOracle, EveryStepOfEveryRankIsThePapers) {
  for (int workers : {1, 2, 3, 4, 7}) {
    for (const auto& [name, rule] : server_rules()) {
      for (int servers : {0, 1, 2}) {
        EXPECT_LT(distance(run(timed_job(rule, workers, "asgd", {}, servers)),
                           asynchronous_sgd({}, rule, paces(workers), kSteps, kSteps)),
                  kRounding)
            << name << ", P=" << workers;
      }
      for (std::int64_t s : {0, 1, 3}) {
        EXPECT_LT(distance(run(timed_job(rule, workers, "ssp", {fmt::format("staleness={}", s)})),
                           asynchronous_sgd({}, rule, paces(workers), kSteps, s)),
                  kRounding)
            << name << ", P=" << workers << ", s=" << s;
      }
      EXPECT_LT(distance(simulate({}, rule, workers, kSteps, "r2sp"), round_robin_sgd({}, rule, workers, kSteps)),
                kRounding)
          << name << ", P=" << workers;
    }
  }
}

TEST(AsynchronousOracle, TellsBoundsAndOrdersApart) {
  const Rule rule{.momentum = 0.9};
  const auto bound = [&rule](std::int64_t s) { return asynchronous_sgd({}, rule, paces(4), kSteps, s); };
  EXPECT_GT(distance(bound(0), bound(1)), 100 * kRounding);
  EXPECT_GT(distance(bound(1), bound(kSteps)), 100 * kRounding);
  EXPECT_GT(distance(bound(0), round_robin_sgd({}, rule, 4, kSteps)), 100 * kRounding);
}

TEST(Asynchronous, OneWorkerIsSerialSgdBitForBit) {
  for (const auto& [name, rule] : server_rules()) {
    const Course serial = simulate({}, rule, 1, kSteps, "ssgd");
    for (const char* strategy : {"asgd", "ssp", "r2sp"}) {
      for (int servers : {0, 1, 2}) {
        EXPECT_EQ(simulate({}, rule, 1, kSteps, strategy, {}, servers), serial) << strategy << ", " << name;
      }
    }
  }
}

TEST(Asynchronous, EachGradientIsAppliedExactlyOnce) {
  for (const char* strategy : {"asgd", "ssp", "r2sp"}) {
    const Course course = run(timed_job({}, 4, strategy, {}, 2));
    EXPECT_LT(distance(course.end, Ranks(4, sum_of_gradients({}, {}, course, 4))), kRounding) << strategy;
  }
}

TEST(Ssp, TheFastestIsNeverMoreThanTheBoundAheadAndUsesIt) {
  for (std::int64_t s : {0, 1, 2, 5}) {
    auto job = timed_job({}, 4, "ssp", {fmt::format("staleness={}", s)});
    job.compute_factors = {1.0, 1.07, 1.13, 9.0};
    std::vector<std::int64_t> clock(4);
    std::int64_t widest = 0;
    job.on_step_end = [&](int rank, std::int64_t t, std::span<const float>) {
      clock[static_cast<std::size_t>(rank)] = t + 1;
      const auto [slowest, fastest] = std::minmax_element(clock.begin(), clock.end());
      widest = std::max(widest, *fastest - *slowest);
    };
    EXPECT_TRUE(run_sim_job(job).agreement());
    EXPECT_LE(widest, s + 1) << "s=" << s;
    EXPECT_GE(widest, std::max<std::int64_t>(s, 1)) << "s=" << s << ": nobody waits without need";
  }
}

TEST(Ssp, WithoutStalenessItIsSyncSgdUpToTheOrderOfAdditions) {
  EXPECT_LT(distance(simulate({}, {}, 3, kSteps, "ssp", {"staleness=0"}), simulate({}, {}, 3, kSteps, "ssgd")),
            kRounding);
}

TEST(R2sp, TimesChangeNoBit) {
  auto slow = timed_job({.momentum = 0.9}, 3, "r2sp");
  slow.compute_factors = {7.0, 1.0, 2.5};
  slow.world.link = {0.01, 5'000.0};
  EXPECT_EQ(run(slow), run(timed_job({.momentum = 0.9}, 3, "r2sp")));
}

// One server, whose port carries a worker's push in a third of a computation. Workers that begin together are set apart
// by the queue at the port: from then on nobody finds another's traffic in its way, and turns cost nothing.
TEST(R2sp, TurnsCostEqualWorkersNoTime) {
  const auto step_seconds = [](const char* strategy) {
    SimJobOptions job = timed_job({}, 4, strategy, {}, 1);
    job.compute_factors = {};
    job.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {8192, 8192, 8192, 8192}});
    job.world.link = {0.001, 4.0 * 32768 / 0.33};
    job.forward_share = 1.0 / 3;
    const auto result = run_sim_job(job);
    double seconds = 0;
    for (std::size_t t = 10; t < kSteps; ++t) seconds += result.ranks[3].steps[t].seconds / (kSteps - 10);
    return seconds;
  };
  EXPECT_LT(step_seconds("r2sp"), 1.01 * step_seconds("asgd"));
  EXPECT_LT(step_seconds("r2sp"), 0.7 * step_seconds("bsp"));
}

}  // namespace
}  // namespace slipstream::oracle
