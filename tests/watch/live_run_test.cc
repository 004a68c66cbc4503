// SPDX-License-Identifier: Apache-2.0
#include "watch/live_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

namespace slipstream {
namespace {

Run named(const std::string& name) {
  slipstream::Run run;
  run.name = name;
  run.workers = 2;
  return run;
}

StepRecord record(std::int64_t t, double loss = 1.0) {
  return {.t = t,
          .loss = loss,
          .lr = 0.1,
          .seconds = 0.5,
          .compute_seconds = 0.25,
          .update_seconds = 0.0625,
          .encode_seconds = 0.0625,
          .exposed_seconds = 0.125,
          .wire_seconds = 0.25,
          .bytes_sent = 100,
          .bytes_received = 200};
}

void step(LiveRun& live, std::int64_t t, double loss = 1.0) { live.step(record(t, loss), {}, 32); }

TEST(LiveRun, BeforeTheFirstStepIsWhatIsKnown) {
  LiveRun live(named("a"));
  const slipstream::Run run = live.run();
  EXPECT_EQ(run.name, "a");
  EXPECT_EQ(run.steps, 0);
  EXPECT_TRUE(run.losses.empty() && run.timeline.empty());
  EXPECT_TRUE(std::isnan(run.final_loss));
  EXPECT_EQ(live.figures().steps, 0);
}

TEST(LiveRun, HasWhatAReportShows) {
  LiveRun live(named("a"));
  for (std::int64_t t = 0; t < 20; ++t) step(live, t, 20.0 - static_cast<double>(t));
  live.evaluated(20, "test_accuracy", 0.75);
  const slipstream::Run run = live.run();
  EXPECT_EQ(run.steps, 20);
  ASSERT_EQ(run.losses.size(), 20U);
  EXPECT_EQ(run.losses[3].step, 3);
  EXPECT_DOUBLE_EQ(run.losses[3].loss, 17.0);
  EXPECT_DOUBLE_EQ(run.losses[3].seconds, 2.0);
  EXPECT_DOUBLE_EQ(run.losses[3].samples, 128.0);
  EXPECT_DOUBLE_EQ(run.step_ms_median, 500.0);
  EXPECT_DOUBLE_EQ(run.samples_per_second, 64.0);
  EXPECT_DOUBLE_EQ(run.mean.compute_ms, 250.0);
  EXPECT_DOUBLE_EQ(run.mean.waiting_ms, 125.0);
  EXPECT_DOUBLE_EQ(run.hidden_fraction, 0.5);
  EXPECT_DOUBLE_EQ(run.efficiency, 0.625);
  EXPECT_DOUBLE_EQ(run.final_loss, 1.0);
  ASSERT_EQ(run.evaluations.size(), 1U);
  EXPECT_EQ(run.metric, "test_accuracy");
  EXPECT_DOUBLE_EQ(run.evaluations[0].value, 0.75);
}

TEST(LiveRun, StaysSmallWhateverItsLength) {
  LiveRun live(named("a"));
  constexpr std::int64_t kSteps = 20'000;
  for (std::int64_t t = 0; t < kSteps; ++t) {
    StepRecord one = record(t, t % 2 == 0 ? 1.0 : 3.0);
    one.news = "news of " + std::to_string(t);
    live.step(one, {}, 32);
    live.evaluated(t + 1, "test_loss", static_cast<double>(t));
  }
  const slipstream::Run run = live.run();
  EXPECT_LE(run.losses.size(), LiveRun::kMostPoints);
  EXPECT_GT(run.losses.size(), LiveRun::kMostPoints / 4);
  EXPECT_EQ(run.losses.back().step, kSteps - 1);
  EXPECT_NEAR(run.losses[7].loss, 2.0, 1e-9);
  EXPECT_LE(run.evaluations.size(), LiveRun::kMostPoints);
  EXPECT_EQ(run.evaluations.back().step, kSteps) << "the last is kept";
  ASSERT_EQ(run.news.size(), LiveRun::kMostLines);
  EXPECT_EQ(run.news.back().text, "news of 19999");
}

TEST(LiveRun, LossesThatAreNotFiniteAreLeftOut) {
  LiveRun live(named("a"));
  for (std::int64_t t = 0; t < 4000; ++t) step(live, t, t % 2 == 0 ? std::nan("") : 2.0);
  for (const LossPoint& point : live.run().losses) EXPECT_DOUBLE_EQ(point.loss, 2.0);
}

TEST(LiveRun, KnowsLossesAndRecoveries) {
  LiveRun live(named("a"));
  step(live, 0);
  GroupChange change;
  change.step = 1;
  change.group = 2;
  change.workers = 1;
  change.lost = 1;
  change.recovery_ms = 1500;
  change.why = "rank 1 was lost";
  live.regrouped(change);
  const slipstream::Run run = live.run();
  ASSERT_EQ(run.changes.size(), 1U);
  EXPECT_DOUBLE_EQ(run.changes[0].seconds, 2.0) << "half a second of training, and the recovery";
  EXPECT_EQ(run.workers, 1);
  const auto figures = live.figures();
  EXPECT_EQ(figures.group, 2);
  EXPECT_EQ(figures.recoveries, 1);
  EXPECT_EQ(figures.workers, 1);
}

TEST(LiveRun, TracesTheLatestStepsWhileSomebodyLooks) {
  using Kind = WorkRecord::Kind;
  LiveRun live(named("a"));
  const auto traced_step = [&](std::int64_t t) {
    const double began = 0.5 * static_cast<double>(t);
    Traffic traffic;
    std::string bucket = "layer";  // gone after this step, as an engine's names are after a regroup
    traffic.work = {{Kind::kForward, {}, began, began + 0.125},
                    {Kind::kBucket, bucket, began + 0.25, began + 0.375},
                    {Kind::kStep, {}, began + 0.375, began + 0.5}};
    traffic.ended = began + 0.5;
    live.step(record(t), traffic, 32);
    bucket.assign(bucket.size(), 'x');
  };
  for (std::int64_t t = 0; t < 10; ++t) traced_step(t);
  EXPECT_TRUE(live.run().timeline.empty()) << "nobody had looked";
  for (std::int64_t t = 10; t < 40; ++t) traced_step(t);
  const Timeline timeline = live.run().timeline;
  ASSERT_EQ(timeline.size(), 1U);
  EXPECT_EQ(timeline[0].name, "rank 0");
  ASSERT_GE(timeline[0].rows.size(), 4U);
  EXPECT_EQ(timeline[0].rows[0].spans.size(), LiveRun::kTracedSteps);
  EXPECT_EQ(timeline[0].rows[0].spans.back().name, "step 39");
  EXPECT_EQ(timeline[0].rows[1].name, "forward");
  EXPECT_EQ(timeline[0].rows[2].spans[0].name, "backward to layer");
  live.regrouped({});
  EXPECT_TRUE(live.run().timeline.empty()) << "a step of another group";
}

TEST(LiveRun, MayBeAskedWhileItTrains) {
  LiveRun live(named("a"));
  std::thread asks([&] {
    for (int i = 0; i < 200; ++i) {
      const slipstream::Run run = live.run();
      EXPECT_EQ(run.losses.size() == 0, run.steps == 0);
      EXPECT_LE(live.figures().recoveries, 1);
    }
  });
  for (std::int64_t t = 0; t < 5000; ++t) step(live, t);
  asks.join();
  EXPECT_EQ(live.figures().steps, 5000);
}

}  // namespace
}  // namespace slipstream
