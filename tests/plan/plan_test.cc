// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace slipstream {
namespace {

// Without costs: what is predicted follows from the profile alone, the same on every machine.
PlanProfile profile(int workers, double mbit, double parameters = 1.66e6, double compute_s = 0.105) {
  PlanProfile p;
  p.workers = workers;
  p.parameters = equal_tensors(parameters, 8);
  p.compute_s = compute_s;
  p.link = {.latency_s = 0.0002, .bytes_per_s = mbit * 1e6 / 8};
  p.costs = false;
  return p;
}

Prediction predicted(const PlanProfile& p, const std::string& strategy) {
  const Registry registry = Registry::builtin();
  return Predictor(p, registry).predict(Contender::parse(strategy));
}

struct Means {
  double step_s = 0, bytes_sent = 0;
};

// What the whole model does in the steps that a prediction is the mean of. In others it may do something else: plans,
// delays and tables follow what was measured before.
Means of_whole_model(const PlanProfile& p, const Prediction& prediction) {
  const Contender& contender = prediction.contender;
  SimJobOptions job;
  job.world.ranks = p.workers;
  job.world.link = p.link;
  job.world.timeout_s = 1e9;
  job.task = std::make_shared<StandIn>(p.parameters, 1 << 22);
  job.make_strategy = Registry::builtin().configure(contender.name, contender.set).make;
  job.steps = prediction.first_step + prediction.steps;
  job.compute_seconds = p.compute_s;
  Means means;
  for (const SimRankResult& rank : run_sim_job(job).ranks) {
    for (std::int64_t i = prediction.first_step; i < job.steps; ++i) {
      const SimStepRecord& step = rank.steps[static_cast<std::size_t>(i)];
      const auto share = 1 / static_cast<double>(p.workers * prediction.steps);
      means.step_s += share * step.seconds;
      means.bytes_sent += share * step.bytes_sent;
    }
  }
  return means;
}

// A model that needs no stand-in: the prediction is the simulation itself. Its tensors are small to gs, which sends them
// whole unless it is told otherwise.
TEST(Plan, EqualsTheSimulatorsOwnRunWhereTheModelIsNotScaled) {
  const PlanProfile p = profile(3, 20, 20'000, 0.01);
  for (const char* name :
       {"ssgd", "topk", "gtopk", "bsp", "lags", "osp", "gs", "gs:dense_below=0", "dasgd:period=4", "dasgd", "ssd"}) {
    const Prediction prediction = predicted(p, name);
    const Means run = of_whole_model(p, prediction);
    EXPECT_NEAR(prediction.step_s, run.step_s, 1e-9) << name;
    EXPECT_NEAR(prediction.bytes_sent, run.bytes_sent, 1e-6 * run.bytes_sent) << name;
  }
}

// The mean is over whole cycles of what is done now and then, after the steps in which it settles.
TEST(Plan, TakesTheMeanOfSettledStepsAndOfWholeCycles) {
  const PlanProfile p = profile(2, 100, 50'000);
  for (const auto& [name, cycle] : {std::pair{"ssgd", 1}, {"osp", 10}, {"osp:resplit_every=7", 7}, {"lags", 50}}) {
    const Prediction prediction = predicted(p, name);
    EXPECT_GE(prediction.first_step, 24) << name;
    EXPECT_GE(prediction.steps, 16) << name;
    EXPECT_EQ(prediction.steps % cycle, 0) << name;
  }
}

TEST(Plan, OneWorkerWaitsForNobody) {
  for (const char* name : {"ssgd", "lags", "dasgd", "ssd", "diloco"}) {
    const Prediction p = predicted(profile(1, 100), name);
    EXPECT_NEAR(p.step_s, 0.105, 1e-9) << name;
    EXPECT_EQ(p.bytes_sent, 0) << name;
    EXPECT_EQ(p.exposed_s, 0) << name;
    EXPECT_NEAR(p.efficiency, 1, 1e-6) << name;
  }
}

TEST(Plan, AnInfinitelyFastLinkExposesNothing) {
  PlanProfile p = profile(4, 1e9);
  p.link.latency_s = 0;
  for (const char* name : {"ssgd", "lags", "gs", "topk", "dasgd", "ssd", "osp", "local"}) {
    const Prediction fast = predicted(p, name);
    EXPECT_NEAR(fast.step_s, 0.105, 1e-4) << name;
    EXPECT_NEAR(fast.exposed_s, 0, 1e-4) << name;
  }
}

// Two workers: a model each way in a dense sum, and one delay.
TEST(Plan, AModelOfOneBucketHidesNothingAndTakesComputingAndTheWire) {
  PlanProfile p = profile(2, 1000);
  p.parameters = {{"weight", 200'000, 1}};
  const Prediction dense = predicted(p, "ssgd");
  EXPECT_NEAR(dense.step_s, 0.105 + 0.0002 + 200'000 * 4 / 125e6, 1e-6);
  EXPECT_NEAR(dense.hidden, 0, 1e-6);
  EXPECT_NEAR(dense.bytes_sent, 800'000, 1);
}

TEST(Plan, LagsHidesWhatItSendsBehindTheModelsLayers) {
  const Prediction lags = predicted(profile(4, 100), "lags"), dense = predicted(profile(4, 100), "ssgd");
  EXPECT_GT(lags.hidden, 0.5);
  EXPECT_LT(lags.step_s, 0.3 * dense.step_s);
}

// An average of 1.66M parameters takes 0.53 s at 100 Mb/s; the step that waits for it is in the mean.
TEST(Plan, AWholePeriodIsInTheMean) {
  for (const std::int64_t period : {4, 50, 500}) {
    const Prediction local = predicted(profile(2, 100), fmt::format("local:period={}", period));
    const double wire_s = 2 * 0.0002 + 1.66e6 * 4 / 12.5e6;
    EXPECT_NEAR(local.step_s, 0.105 + wire_s / static_cast<double>(period), 0.02 * wire_s / static_cast<double>(period))
        << period;
    EXPECT_LT(local.efficiency, 1) << period;
  }
  EXPECT_LT(predicted(profile(2, 100), "diloco:period=500").efficiency, 1);
}

// An average takes 53 s, 500 steps: a period that the strategy chooses is found in the simulation, and is whole.
TEST(Plan, APeriodThatTheStrategyChoosesIsInTheMean) {
  const Prediction slow = predicted(profile(2, 1), "dasgd");
  EXPECT_GT(slow.bytes_sent, 1000) << "it averages";
  EXPECT_GT(slow.efficiency, 0.9);
  const Prediction large = predicted(profile(4, 100, 40'000'000), "dasgd");
  EXPECT_GT(large.bytes_sent, 2 * 0.75 * 4 * 40e6 / 1000)
      << "what workers tell each other between averages is no average";
}

TEST(Plan, PeriodsOfDelayedAveragingTakeAsLongAsTheWireWhereItIsLonger) {
  EXPECT_NEAR(predicted(profile(2, 100), "dasgd:period=4").step_s, (2 * 0.0002 + 1.66e6 * 4 / 12.5e6) / 4, 0.001);
  EXPECT_GE(predicted(profile(2, 100), "dasgd").efficiency, 0.98);
}

// The delay follows the wire by what earlier averages took; it must have settled where the mean begins.
TEST(Plan, ALongerPeriodOfDelayedAveragingIsNotSlower) {
  const Prediction often = predicted(profile(4, 100), "dasgd:period=8"),
                   rarely = predicted(profile(4, 100), "dasgd:period=16");
  EXPECT_LE(rarely.step_s, 1.001 * often.step_s);
  EXPECT_GE(rarely.efficiency, 0.98);
}

// The scaled stand-in against the model itself. What differs is rounding to whole entries and blocks, and the heads of
// messages, which count as often as what they carry. Servers' parts are cut at so many bytes, which do not shrink: the
// stand-in's are larger, and less of one is on its way while another is worked on.
TEST(Plan, AStandInPredictsWhatTheWholeModelDoes) {
  const PlanProfile p = profile(2, 300, 2e6, 0.05);  // of which a stand-in keeps an eighth
  struct Case {
    const char* name;
    double step, bytes;  // what they may differ by
  };
  for (const Case& c : {Case{"ssgd", 1e-3, 1e-3}, Case{"topk", 1e-3, 5e-3}, Case{"local:period=4", 1e-3, 1e-3},
                        Case{"dasgd:period=4", 1e-3, 1e-3}, Case{"gs", 1e-3, 5e-3}, Case{"lags", 1e-3, 0.02},
                        Case{"bsp", 0.03, 1e-3}}) {
    const Prediction small = predicted(p, c.name);
    const Means whole = of_whole_model(p, small);
    EXPECT_NEAR(small.step_s, whole.step_s, c.step * whole.step_s) << c.name;
    EXPECT_NEAR(small.bytes_sent, whole.bytes_sent, c.bytes * whole.bytes_sent) << c.name;
  }
}

// An average is sent in one step, is under way during five others, and is waited for in a last one.
TEST(Plan, BytesThatAreHiddenBehindSeveralStepsTakeTheirTimeFromComputing) {
  PlanProfile p = profile(2, 100);
  const double free_s = predicted(p, "dasgd:period=16").step_s;
  p.io_s_per_byte = 1e-9;
  const double moved = 2 * 1.66e6 * 4 / 16;  // both ways, in a step
  EXPECT_NEAR(predicted(p, "dasgd:period=16").step_s - free_s, 1e-9 * moved, 0.02e-9 * moved);
}

TEST(Plan, WithoutCostsServersTakeNoTimeFromWorkersBesideThem) {
  PlanProfile p = profile(2, 100, 50'000);
  const double step_s = predicted(p, "ssd").step_s;
  p.shared_cores = true;
  EXPECT_EQ(predicted(p, "ssd").step_s, step_s);
}

// Sizes below which tensors are sent whole shrink with the model.
TEST(Plan, AStandInIsNotTakenForASmallModel) {
  EXPECT_LT(predicted(profile(16, 1000, 1e9, 0.5), "gs").bytes_sent, 0.2 * 8e9);
}

TEST(Plan, CostsOfEncodingPassAsTime) {
  PlanProfile p = profile(2, 1000, 4e6, 0.01);
  const double without = predicted(p, "gs").step_s;
  p.costs = true;
  p.cpu_factor = 10;
  const Prediction with = predicted(p, "gs");
  EXPECT_GT(with.step_s, without);
  EXPECT_GT(with.encode_s, 0);
}

TEST(Plan, AThousandWorkersFinish) {
  const Prediction dense = predicted(profile(1024, 1000), "ssgd");
  EXPECT_NEAR(dense.bytes_sent, 2 * 1023.0 / 1024 * 1.66e6 * 4, 0.01 * 1.66e6 * 8);
  EXPECT_GE(predicted(profile(1024, 1000), "dasgd:period=16").efficiency, 0.95);
}

TEST(Plan, KnowsWhoseWorkersAreEqualAfterEveryStep) {
  for (const char* name : {"ssgd", "lags", "gs", "topk", "powersgd", "bsp"}) {
    EXPECT_TRUE(predicted(profile(2, 100, 50'000), name).equal) << name;
  }
  for (const char* name : {"local", "dasgd", "ssd", "diloco", "asgd"}) {
    EXPECT_FALSE(predicted(profile(2, 100, 50'000), name).equal) << name;
  }
}

TEST(Plan, CountsCopiesOfTheModel) {
  EXPECT_NEAR(predicted(profile(2, 100), "ssgd").copies, 3, 0.01) << "weights, gradients, velocity";
  PlanProfile adam = profile(2, 100);
  adam.optimizer.kind = "adamw";
  EXPECT_NEAR(predicted(adam, "ssgd").copies, 4, 0.01) << "two moments";
}

TEST(Plan, NamesTheFastestAndTheMildestOfThoseAboutAsFast) {
  const Registry registry = Registry::builtin();
  const PlanRequest request{.strategies = {"ssgd", "lags", "topk", "dasgd"}};
  const Plan slow = make_plan(profile(4, 100), request, registry);
  EXPECT_EQ(slow.synchronous.strategy, "lags");
  EXPECT_FALSE(slow.synchronous.why.empty());
  const Plan fast = make_plan(profile(4, 1e6), request, registry);
  EXPECT_EQ(fast.synchronous.strategy, "ssgd");
  EXPECT_EQ(fast.any.strategy, "ssgd");
}

TEST(Plan, ItsTableFitsATerminalAndItsJsonCanBeRead) {
  const Registry registry = Registry::builtin();
  Plan plan = make_plan(profile(2, 100), {.strategies = {"ssgd", "streaming-diloco:period=64", "lags"}}, registry);
  const std::string text = plan_text(plan);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    EXPECT_LE(end - at, 80U) << text.substr(at, end - at);
    at = end + 1;
  }
  const auto read = nlohmann::json::parse(plan_json({plan}));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0]["workers"], 2);
  ASSERT_EQ(read[0]["strategies"].size(), 3U);
  EXPECT_EQ(read[0]["strategies"][0]["strategy"], "ssgd");
  EXPECT_GT(read[0]["strategies"][0]["step_ms"], 105.0);
}

TEST(Plan, UnknownStrategiesAndOptionsAreErrors) {
  const Registry registry = Registry::builtin();
  for (const char* bad : {"dasdg", "gs:rows", "dasgd:perod=4", "gs:density=7"}) {
    EXPECT_THROW(make_plan(profile(2, 100), {.strategies = {bad}}, registry), ConfigError) << bad;
  }
}

TEST(Plan, MeasuredTimesBecomeSharesInTheOrderOfTheSlots) {
  PlanProfile p = profile(2, 100);
  p.take_times({0.5, 0.1, 0.2, 0.3});  // the last tensor first, with forward
  EXPECT_NEAR(p.compute_s, 1.1, 1e-12);
  EXPECT_NEAR(p.forward_share, 0.3 / 1.1, 1e-12) << "but for the mean of the others";
  ASSERT_EQ(p.backward_shares.size(), 4U);
  EXPECT_NEAR(p.backward_shares[0], 0.3 / 0.8, 1e-12);
  EXPECT_NEAR(p.backward_shares[3], 0.2 / 0.8, 1e-12);
}

}  // namespace
}  // namespace slipstream
