// SPDX-License-Identifier: Apache-2.0
#include "strategy/sync_sgd.h"

#include <gtest/gtest.h>

#include "oracle/simulated.h"
#include "oracle/sync_sgd_oracle.h"

namespace slipstream::oracle {
namespace {

constexpr std::int64_t kSteps = 40;

TEST(SyncSgdOracle, EveryStepOfEveryRankIsThePapers) {
  for (int workers : {1, 2, 3, 4, 7}) {
    for (const auto& [name, rule] : rules()) {
      const Course expected = sync_sgd({}, rule, workers, kSteps);
      EXPECT_LT(distance(simulate({}, rule, workers, kSteps, "ssgd"), expected), kRounding)
          << name << ", P=" << workers;
    }
  }
}

// The tolerance above is worth something only if it tells a wrong rule from a right one.
TEST(SyncSgdOracle, OraclesTellRulesApart) {
  for (const auto& [name, rule] : rules()) {
    for (const auto& [other_name, other] : rules()) {
      if (name == other_name) continue;
      EXPECT_GT(distance(sync_sgd({}, rule, 3, kSteps), sync_sgd({}, other, 3, kSteps)), 100 * kRounding)
          << name << " and " << other_name;
    }
  }
  EXPECT_GT(distance(sync_sgd({}, {}, 3, kSteps).end, Ranks(3, sync_sgd({}, {}, 4, kSteps).end[0])), 100 * kRounding);
}

TEST(SyncSgd, OneWorkerIsPlainSgdBitForBit) {
  for (const auto& [name, rule] : rules()) {
    const ProblemTask task{Problem{}};
    FlatModel model(task.parameters());
    task.init(model.weights(), 1);
    const auto optimizer = make_optimizer(optimizer_of(rule), model.count());
    const Course run = simulate({}, rule, 1, kSteps, "ssgd");
    for (std::int64_t t = 0; t < kSteps; ++t) {
      task.gradient(model.weights(), model.grads(), 0, t);
      optimizer->set_lr(rule.lr_at(t));
      optimizer->step(model.weights(), model.grads());
      ASSERT_EQ(run.steps[static_cast<std::size_t>(t)][0], Vec(model.weights().begin(), model.weights().end()))
          << name << ", step " << t;
    }
  }
}

TEST(SyncSgd, AnyBucketPlanGivesTheSameBits) {
  const Rule rule{.momentum = 0.9};
  for (const char* wire : {"wire=fp32", "wire=fp16", "wire=bf16"}) {
    const Course whole = simulate({}, rule, 3, kSteps, "ssgd", {wire});  // one bucket: the model is small
    for (const char* bytes : {"0", "0.000005", "0.00001", "0.00003", "4096"}) {
      const std::string first = std::string("first_bucket_mb=") + bytes, others = std::string("bucket_mb=") + bytes;
      EXPECT_EQ(simulate({}, rule, 3, kSteps, "ssgd", {wire, first, "bucket_mb=0"}), whole) << wire << ' ' << first;
      EXPECT_EQ(simulate({}, rule, 3, kSteps, "ssgd", {wire, "first_bucket_mb=0", others}), whole)
          << wire << ' ' << others;
    }
  }
}

TEST(SyncSgd, IdenticalDataOnAllRanksEqualsOneWorker) {
  const Problem same{.same_data = true};
  const Rule rule{.momentum = 0.9, .weight_decay = 0.01};
  const Course one = simulate(same, rule, 1, kSteps, "ssgd");
  for (int workers : {2, 4}) {  // sums of equal numbers and their halves are exact
    EXPECT_EQ(simulate(same, rule, workers, kSteps, "ssgd").end, Ranks(static_cast<std::size_t>(workers), one.end[0]));
  }
  for (int workers : {3, 7}) {
    const Course run = simulate(same, rule, workers, kSteps, "ssgd");
    EXPECT_LT(distance(run.end, Ranks(static_cast<std::size_t>(workers), one.end[0])), kRounding) << workers;
  }
}

// One rounding of every rank's gradient and one of the sum, each by at most half a unit in the last place.
void expect_within_rounding_of_the_wire(const std::string& wire, double unit, int workers) {
  const Rule rule{.lr = 0.1};
  const Problem problem;
  const Course run = simulate(problem, rule, workers, kSteps, "ssgd", {"wire=" + wire});
  double largest_share = 0;  // of the bound that was used up
  for (std::size_t t = 1; t < run.steps.size(); ++t) {
    const Vec &before = run.steps[t - 1][0], &after = run.steps[t][0];
    Ranks g;
    for (int p = 0; p < workers; ++p) g.push_back(problem.gradient(before, p, static_cast<std::int64_t>(t)));
    for (std::size_t j = 0; j < problem.size; ++j) {
      double sum = 0, sum_of_sizes = 0;
      for (const Vec& mine : g) {
        sum += mine[j];
        sum_of_sizes += std::abs(mine[j]);
      }
      const double on_wire = unit * (sum_of_sizes * (1 + unit) + std::abs(sum)) + (workers + 1) * 0x1.0p-25;
      const double bound = rule.lr / workers * on_wire + 4 * 0x1.0p-24 * (std::abs(after[j]) + rule.lr * sum_of_sizes);
      const double error = std::abs(after[j] - (before[j] - rule.lr * sum / workers));
      ASSERT_LE(error, bound) << wire << ", P=" << workers << ", step " << t << ", element " << j;
      largest_share = std::max(largest_share, error / bound);
    }
    for (const Vec& rank : run.steps[t]) ASSERT_EQ(rank, after) << "replicas differ after step " << t;
  }
  EXPECT_GT(largest_share, 0.2) << "no rounding to " << wire << " is to be seen";
}

TEST(SyncSgd, SixteenBitWiresStayWithinTheirRoundingAndReplicasIdentical) {
  for (int workers : {2, 3, 7}) {
    expect_within_rounding_of_the_wire("fp16", 0x1.0p-11, workers);
    expect_within_rounding_of_the_wire("bf16", 0x1.0p-8, workers);
  }
}

}  // namespace
}  // namespace slipstream::oracle
