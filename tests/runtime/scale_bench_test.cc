// SPDX-License-Identifier: Apache-2.0
#include "runtime/scale_bench.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

namespace slipstream {
namespace {

std::vector<ScaleRow> rows(const std::string& strategy, const std::vector<std::string>& set, const std::string& link,
                           std::int64_t max_workers = 256) {
  return measure_scale(
      {.strategies = {strategy}, .set = set, .link = link, .max_workers = max_workers, .steps = 48, .stand_in = 4096},
      Registry::builtin());
}

// 1.66M parameters at 1 Gb/s: an average takes up to 106 ms and, at 256 workers, 510 latencies of 0.2 ms more.
TEST(ScaleBench, DelayedAveragingScalesLinearlyTo256WorkersWhereTheDelayCoversTheWire) {
  for (const char* delay : {"delay=2", "delay=auto"}) {
    const auto measured = rows("dasgd", {delay}, "1gbit");
    ASSERT_EQ(measured.size(), 9U);
    EXPECT_EQ(measured.back().workers, 256);
    for (const ScaleRow& row : measured) {
      EXPECT_GE(row.linear, 0.98) << row.workers << " workers, " << delay;
      EXPECT_GE(row.hidden, 0.95) << row.workers << " workers, " << delay;
    }
  }
}

TEST(ScaleBench, WhatIsNotHiddenShows) {
  const auto blocking = rows("dasgd", {"delay=0"}, "1gbit", 16);
  EXPECT_NEAR(blocking[0].linear, 1, 1e-9) << "one worker waits for nobody";
  for (std::size_t i = 1; i < blocking.size(); ++i) {
    EXPECT_LT(blocking[i].linear, 0.9) << blocking[i].workers;
    EXPECT_NEAR(blocking[i].hidden, 0, 1e-6) << blocking[i].workers;
  }
  const double wire_ms = 2 * 0.2 + 1000 * 1.66e6 * 4 / 125e6;  // two workers: a model each way
  EXPECT_NEAR(blocking[1].step_ms, 105 + wire_ms / 4, 0.1) << "of four steps one waits";
  EXPECT_NEAR(blocking[1].mb_sent, 1.66 * 4 / 4, 1e-6);
}

// At 100 Mb/s and two workers an average takes 531 ms, more than the 4 × 105 ms of a period: the difference is waited
// for, no more. By default the period is chosen so that nothing is.
TEST(ScaleBench, WhereTheWireIsLongerThanThePeriodTheStepsTakeAsLongAsTheWire) {
  const auto slow = rows("dasgd", {"period=4"}, "100mbit", 2);
  EXPECT_NEAR(slow[1].step_ms, (2 * 0.2 + 1000 * 1.66e6 * 4 / 12.5e6) / 4, 0.5);
  EXPECT_GE(rows("dasgd", {"period=6"}, "100mbit", 2)[1].linear, 0.98);
  EXPECT_GE(rows("dasgd", {}, "100mbit", 2)[1].linear, 0.98);
}

// As for the real model, whose first bucket of 1 MB is ready long before backward ends.
TEST(ScaleBench, BucketsAreThoseOfTheModelThatIsStoodInFor) {
  ScaleBenchOptions options{.strategies = {"ssgd"}, .parameters = 25e6, .min_workers = 4, .max_workers = 4, .steps = 4};
  options.stand_in = 65536;
  options.link = "10gbit";
  const auto measured = measure_scale(options, Registry::builtin());
  EXPECT_GT(measured[0].hidden, 0.5) << "four buckets of five";
}

// gs-SGD's headline, with as many columns as entries: exact, since time is simulated.
TEST(ScaleBench, GsExposesAtMostHalfOfWhatGtopkDoesAndLearnsMore) {
  for (const char* link : {"1gbit", "1gbit,25ms"}) {
    ScaleBenchOptions options{
        .strategies = {"gtopk", "gs:density=0.01"}, .link = link, .parameters = 25e6, .compute_ms = 200};
    options.min_workers = options.max_workers = 16;
    options.steps = 20;
    options.train = true;
    const auto measured = measure_scale(options, Registry::builtin());
    EXPECT_LE(measured[1].exposed_ms, 0.5 * measured[0].exposed_ms) << link;
    EXPECT_LE(measured[1].loss, measured[0].loss) << link;
  }
}

TEST(ScaleBench, RefusesWhatMakesNoSense) {
  const Registry registry = Registry::builtin();
  for (const ScaleBenchOptions& bad :
       {ScaleBenchOptions{.link = "none"}, ScaleBenchOptions{.link = "fast"}, ScaleBenchOptions{.link = "1gbit,5ms,1%"},
        ScaleBenchOptions{.parameters = 0}, ScaleBenchOptions{.compute_ms = 0}, ScaleBenchOptions{.max_workers = 0},
        ScaleBenchOptions{.min_workers = 8, .max_workers = 4}, ScaleBenchOptions{.steps = 1},
        ScaleBenchOptions{.stand_in = 0}, ScaleBenchOptions{.seeds = 2}, ScaleBenchOptions{.strategies = {"dasdg"}},
        ScaleBenchOptions{.strategies = {"gs:rows"}}, ScaleBenchOptions{.set = {"perod=4"}}}) {
    EXPECT_THROW(measure_scale(bad, registry), ConfigError);
  }
}

}  // namespace
}  // namespace slipstream
