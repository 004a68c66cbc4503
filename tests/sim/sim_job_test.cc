// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_job.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <slipstream/strategy/registry.h>

namespace slipstream {
namespace {

// Averages gradients, bucket by bucket; counts its steps so that it has state of its own.
class MeanStrategy final : public Strategy {
 public:
  BucketRule buckets() const override { return BucketRule::per_slot(); }
  void on_bucket_ready(Step& s, const Bucket& bucket) override { sums_.push_back(s.net.sum(s.model.grads(bucket))); }
  void on_step(Step& s) override {
    EXPECT_EQ(s.t, steps_);
    ++steps_;
    for (InFlight& sum : sums_) sum.wait();
    sums_.clear();
    s.opt.step(s.model.weights(), s.model.grads(), 1.0F / static_cast<float>(s.net.size()));
  }
  void visit(StateVisitor& v) override { v.integer("steps", steps_); }

 private:
  std::int64_t steps_ = 0;
  std::vector<InFlight> sums_;
};

SimJobOptions job(int ranks) {
  SimJobOptions options;
  options.world.ranks = ranks;
  options.world.link = {0.0, 1000.0};
  options.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {6, 1, 0, 3}});
  options.make_strategy = [] { return std::make_unique<MeanStrategy>(); };
  options.steps = 12;
  return options;
}

TEST(SimJob, RanksAgreeAtAnySize) {
  for (int ranks : {1, 2, 3, 4, 7}) {
    const auto result = run_sim_job(job(ranks));
    EXPECT_TRUE(result.agreement()) << ranks << " ranks";
    EXPECT_EQ(result.ranks[0].weights.size(), 10U);
    EXPECT_EQ(result.ranks[0].steps.size(), 12U);
  }
}

TEST(SimJob, EqualsATrainingLoopWrittenOut) {
  auto options = job(2);
  options.optimizer.momentum = 0.0;
  const QuadraticTask task({.layers = {6, 1, 0, 3}});
  std::vector<float> weights(10), a(10), b(10);
  task.init(weights, options.seed);
  std::vector<double> losses;
  for (std::int64_t t = 0; t < options.steps; ++t) {
    losses.push_back(task.gradient(weights, a, 0, t));
    task.gradient(weights, b, 1, t);
    for (std::size_t j = 0; j < 10; ++j) weights[j] -= 0.05F * 0.5F * (a[j] + b[j]);
  }
  const auto result = run_sim_job(options);
  for (std::size_t j = 0; j < 10; ++j) EXPECT_NEAR(result.ranks[1].weights[j], weights[j], 1e-6);
  for (std::size_t t = 0; t < losses.size(); ++t) EXPECT_NEAR(result.ranks[0].steps[t].loss, losses[t], 1e-5);
}

TEST(SimJob, RepeatsBitForBit) {
  const auto first = run_sim_job(job(4)), second = run_sim_job(job(4));
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(first.ranks[r].weights, second.ranks[r].weights);
    EXPECT_EQ(first.ranks[r].steps, second.ranks[r].steps);
  }
  EXPECT_EQ(first.seconds, second.seconds);
}

TEST(SimJob, SaveAndResumeEqualsUninterrupted) {
  auto options = job(3);
  options.lr = [](std::int64_t t) { return t < 6 ? 0.05 : 0.01; };
  const auto whole = run_sim_job(options);
  options.stop_after = 5;
  const auto half = run_sim_job(options);
  ASSERT_TRUE(half.saved.has_value());
  EXPECT_EQ(half.ranks[0].steps.size(), 5U);
  options.stop_after.reset();
  options.resume = &*half.saved;
  const auto rest = run_sim_job(options);
  EXPECT_EQ(rest.ranks[2].steps.size(), 7U);
  EXPECT_EQ(rest.ranks[2].steps.front().t, 5);
  EXPECT_EQ(rest.ranks[2].weights, whole.ranks[2].weights);
  EXPECT_NE(half.ranks[2].weights, whole.ranks[2].weights);
}

TEST(SimJob, RefusesToResumeWithAnotherNumberOfRanks) {
  auto options = job(2);
  options.stop_after = 1;
  const auto half = run_sim_job(options);
  options = job(3);
  options.resume = &*half.saved;
  EXPECT_THROW(run_sim_job(options), ConfigError);
}

TEST(SimJob, TimeIsComputePlusWhatIsExposed) {
  auto options = job(2);
  options.compute_seconds = 9.0;  // 3 forward; the buckets are ready at 4.8, 5.4 and 9
  const auto result = run_sim_job(options);
  const SimStepRecord& step = result.ranks[0].steps[3];
  EXPECT_DOUBLE_EQ(step.bytes_sent, 40.0);
  EXPECT_NEAR(step.wire_seconds, 0.040, 1e-9);
  EXPECT_NEAR(step.exposed_seconds, 0.024, 1e-9);  // only the first layer's six floats come too late to hide
  EXPECT_NEAR(step.seconds, 9.024, 1e-9);
  EXPECT_NEAR(result.seconds, 0.040 + 12 * 9.024 + 0.004, 1e-6);  // weights first, one float at the end
}

TEST(SimJob, AStragglerIsWaitedFor) {
  auto options = job(2);
  options.compute_seconds = 1.0;
  options.compute_factors = {1.0, 3.0};
  const auto result = run_sim_job(options);
  EXPECT_NEAR(result.ranks[0].steps[5].seconds, 3.024, 1e-9);
  EXPECT_GT(result.ranks[0].steps[5].exposed_seconds, 1.9);
  EXPECT_LT(result.ranks[1].steps[5].exposed_seconds, 0.03);
}

// With two workers half of what a server is pushed comes from the worker beside it, over no wire.
TEST(SimJob, AServerHandlesWhatTheWorkerBesideItPushesAsWell) {
  auto options = job(2);
  options.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {4096}});
  options.make_strategy = Registry::builtin().configure("bsp", {}).make;
  const auto result = run_sim_job(options);
  ASSERT_EQ(result.servers.size(), 2U);
  for (const SimServerResult& server : result.servers) {
    EXPECT_GT(server.bytes_handled, 1.8 * server.bytes_received);
  }
}

TEST(SimJob, ALostRankEndsTheJobWithAnErrorNotAHang) {
  auto options = job(3);
  options.world.faults = {Fault::crash(2, FaultPoint::at_step(4))};
  std::vector<std::int64_t> last(3, -1);
  options.on_step_end = [&](int rank, std::int64_t t, std::span<const float> weights) {
    EXPECT_EQ(weights.size(), 10U);
    last[static_cast<std::size_t>(rank)] = t;
  };
  const auto result = run_sim_job(options);
  EXPECT_FALSE(result.agreement());
  EXPECT_EQ(result.ranks[2].outcome.kind, RankOutcome::Kind::kCrashed);
  EXPECT_NE(result.ranks[0].outcome.error.find("rank 2 did not take part"), std::string::npos);
  EXPECT_EQ(last, (std::vector<std::int64_t>{3, 3, 3}));
  EXPECT_TRUE(result.ranks[0].weights.empty());
}

TEST(SimJob, LearnsWithTheMlp) {
  auto options = job(4);
  options.task = std::make_shared<MlpTask>();
  options.steps = 60;
  const auto result = run_sim_job(options);
  EXPECT_TRUE(result.agreement());
  EXPECT_LT(result.ranks[1].steps.back().loss, 0.3 * result.ranks[1].steps.front().loss);
}

TEST(SimJob, SixtyFourRanksRunTwoHundredSteps) {
  auto options = job(64);
  options.steps = 200;
  EXPECT_TRUE(run_sim_job(options).agreement());
}

}  // namespace
}  // namespace slipstream
