// SPDX-License-Identifier: Apache-2.0
#include "strategy/local_sgd.h"

#include <gtest/gtest.h>

#include "oracle/local_sgd_oracle.h"
#include "oracle/simulated.h"
#include "oracle/sync_sgd_oracle.h"

namespace slipstream::oracle {
namespace {

constexpr std::int64_t kSteps = 40;

std::vector<std::string> options(std::int64_t period, std::int64_t warmup) {
  return {"period=" + std::to_string(period), "warmup_steps=" + std::to_string(warmup)};
}

TEST(LocalSgdOracle, EveryStepOfEveryRankIsThePapers) {
  for (int workers : {1, 2, 3, 4, 7}) {
    for (const auto& [name, rule] : rules()) {
      const Course expected = local_sgd({}, rule, workers, kSteps, 4, 0);
      const Course run = simulate({}, rule, workers, kSteps, "local", options(4, 0));
      EXPECT_LT(distance(run, expected), kRounding) << name << ", P=" << workers;
    }
  }
}

TEST(LocalSgdOracle, HoldsForAnyPeriodAndWarmup) {
  const Rule rule{.momentum = 0.9, .weight_decay = 0.01};
  for (std::int64_t period : {1, 2, 3, 7, 39, 40, 100}) {
    for (std::int64_t warmup : {0, 1, 5, 39, 40}) {
      const Course expected = local_sgd({}, rule, 3, kSteps, period, warmup);
      const Course run = simulate({}, rule, 3, kSteps, "local", options(period, warmup));
      EXPECT_LT(distance(run, expected), kRounding) << "period " << period << ", warm-up " << warmup;
    }
  }
}

// The tolerance above is worth something only if it tells schedules apart.
TEST(LocalSgdOracle, OraclesTellSchedulesApart) {
  const Rule rule{.momentum = 0.9};
  const Course run = local_sgd({}, rule, 3, kSteps, 4, 0);
  EXPECT_GT(distance(run, local_sgd({}, rule, 3, kSteps, 5, 0)), 100 * kRounding);
  EXPECT_GT(distance(run, local_sgd({}, rule, 3, kSteps, 4, 1)), 100 * kRounding);
  EXPECT_GT(distance(run, sync_sgd({}, rule, 3, kSteps)), 100 * kRounding);
}

TEST(LocalSgd, PeriodOneWithoutMomentumEqualsSyncSgdToRounding) {
  for (const Rule& rule : {Rule{}, Rule{.weight_decay = 0.01}}) {
    for (int workers : {2, 3, 7}) {
      const Course run = simulate({}, rule, workers, kSteps, "local", options(1, 0));
      EXPECT_LT(distance(run, simulate({}, rule, workers, kSteps, "ssgd")), kRounding) << workers;
    }
  }
}

TEST(LocalSgd, AWarmupToTheEndEqualsSyncSgdBitForBit) {
  for (const auto& [name, rule] : rules()) {
    for (int workers : {1, 2, 3, 7}) {
      const Course sync = simulate({}, rule, workers, kSteps, "ssgd", {"first_bucket_mb=0", "bucket_mb=0"});
      for (std::int64_t warmup : {kSteps, kSteps + 9}) {
        EXPECT_EQ(simulate({}, rule, workers, kSteps, "local", options(3, warmup)), sync) << name << ", P=" << workers;
      }
    }
  }
}

TEST(LocalSgd, OneWorkerIsPlainSgdBitForBitAtAnyPeriod) {
  for (const auto& [name, rule] : rules()) {
    for (std::int64_t period : {1, 3, 40}) {
      EXPECT_EQ(simulate({}, rule, 1, kSteps, "local", options(period, 0)), simulate({}, rule, 1, kSteps, "ssgd"))
          << name;
    }
  }
}

TEST(LocalSgd, IdenticalDataOnAllRanksEqualsOneWorker) {
  const Problem same{.same_data = true};
  const Rule rule{.momentum = 0.9, .nesterov = true};
  const Course one = simulate(same, rule, 1, kSteps, "local", options(3, 5));
  for (int workers : {2, 4}) {  // sums of equal numbers and their halves are exact
    const Course run = simulate(same, rule, workers, kSteps, "local", options(3, 5));
    EXPECT_EQ(run.end, Ranks(static_cast<std::size_t>(workers), one.end[0])) << workers;
  }
  for (int workers : {3, 7}) {
    const Course run = simulate(same, rule, workers, kSteps, "local", options(3, 5));
    EXPECT_LT(distance(run.end, Ranks(static_cast<std::size_t>(workers), one.end[0])), kRounding) << workers;
  }
}

TEST(LocalSgd, RanksDifferBetweenAveragesAndAgreeAfterThem) {
  const Course run = simulate({}, {.momentum = 0.9}, 3, 10, "local", options(4, 0));
  for (std::size_t t = 0; t < 10; ++t) {
    EXPECT_EQ(run.steps[t][0] == run.steps[t][1] && run.steps[t][0] == run.steps[t][2], t % 4 == 3) << "step " << t;
  }
  EXPECT_EQ(run.end, Ranks(3, run.end[0]));
}

}  // namespace
}  // namespace slipstream::oracle
