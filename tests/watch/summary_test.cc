// SPDX-License-Identifier: Apache-2.0
#include "watch/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace slipstream {
namespace {

StepStatistics of_seconds(const std::vector<double>& seconds) {
  StepStatistics statistics;
  for (double s : seconds) statistics.add({.seconds = s});
  return statistics;
}

TEST(StepStatistics, MediansSkipTheFirstFiveSteps) {
  EXPECT_DOUBLE_EQ(of_seconds({100, 100, 100, 100, 100, 1, 9, 2}).median_ms(&StepRecord::seconds), 2000.0);
  EXPECT_DOUBLE_EQ(of_seconds({100, 100, 100, 100, 100, 3}).median_ms(&StepRecord::seconds), 3000.0);
}

TEST(StepStatistics, AllStepsCountWhereThereAreNoMore) {
  EXPECT_DOUBLE_EQ(of_seconds({5, 1, 3}).median_ms(&StepRecord::seconds), 3000.0);
  EXPECT_DOUBLE_EQ(of_seconds({5, 1, 3, 4, 2}).median_ms(&StepRecord::seconds), 3000.0);
  EXPECT_EQ(of_seconds({}).median_ms(&StepRecord::seconds), 0.0);
}

// A night's run: means are of all steps, medians of a sample that stays small and spread over the whole run.
TEST(StepStatistics, MillionsOfStepsTakeBoundedMemory) {
  StepStatistics statistics;
  const std::int64_t steps = 1'000'000;
  for (std::int64_t t = 0; t < steps; ++t) statistics.add({.t = t, .seconds = 1e-3 * static_cast<double>(t)});
  EXPECT_EQ(statistics.steps(), steps);
  EXPECT_NEAR(statistics.mean_ms(&StepRecord::seconds), (steps + 4) / 2.0, 1e-3 * steps);
  EXPECT_NEAR(statistics.median_ms(&StepRecord::seconds), steps / 2.0, 0.01 * steps);
  EXPECT_LT(sizeof(StepRecord) * 2 * StepStatistics::kMostSampled, 2U << 20);
}

Summary of_step(const std::string& strategy, double compute, double encode, double exposed) {
  Summary summary;
  summary.workers = 2;
  summary.strategy = strategy;
  summary.steps.add({.seconds = compute + encode + exposed,
                     .compute_seconds = compute,
                     .encode_seconds = encode,
                     .exposed_seconds = exposed});
  return summary;
}

TEST(Summary, AdvisesWhatToDoAboutTimeThatIsNotSpentComputing) {
  EXPECT_EQ(of_step("ssgd", 0.09, 0, 0.01).advice(), "another strategy could save at most 10 % of a step");
  EXPECT_NE(of_step("ssgd", 0.02, 0, 0.08).advice().find("80 % of a step waits for the network; try --strategy auto"),
            std::string::npos);
  EXPECT_NE(of_step("gs", 0.02, 0, 0.08).advice().find("explain gs"), std::string::npos);
  EXPECT_NE(of_step("gs", 0.05, 0.04, 0.01).advice().find("40 % of a step goes into preparing"), std::string::npos);
  Summary late = of_step("ssgd", 0.05, 0, 0.05);
  late.compute_ms = {50, 90, 50};
  EXPECT_NE(late.advice().find("rank 1 computes 40 ms a step longer"), std::string::npos) << late.advice();
  late.workers = 1;
  EXPECT_EQ(late.advice(), "");
}

TEST(StepStatistics, MeansCountEveryStep) {
  StepStatistics statistics;
  for (double bytes : {0.0, 0.0, 0.0, 40.0, 0.0, 0.0, 0.0, 40.0}) statistics.add({.bytes_sent = bytes});
  EXPECT_DOUBLE_EQ(statistics.mean(&StepRecord::bytes_sent), 10.0);
  EXPECT_EQ(StepStatistics().mean(&StepRecord::bytes_sent), 0.0);
}

TEST(StepStatistics, HiddenFractionIsTheShareOfWireTimeNobodyWaitedFor) {
  const auto hidden = [](double exposed, double wire) {
    StepStatistics statistics;
    for (int i = 0; i < 5; ++i) statistics.add({.exposed_seconds = 50, .wire_seconds = 50});  // skipped
    for (int i = 0; i < 3; ++i) statistics.add({.exposed_seconds = exposed, .wire_seconds = wire});
    return statistics.hidden_fraction();
  };
  EXPECT_DOUBLE_EQ(hidden(1, 4), 0.75);
  EXPECT_DOUBLE_EQ(hidden(4, 4), 0.0);
  EXPECT_DOUBLE_EQ(hidden(9, 4), 0.0) << "waiting for a straggler is not wire time";
  EXPECT_DOUBLE_EQ(hidden(0, 4), 1.0);
  EXPECT_DOUBLE_EQ(hidden(0, 0), 1.0);
}

TEST(StepStatistics, TheBackgroundLanesHiddenFractionIsItsOwn) {
  StepStatistics statistics;
  statistics.add(
      {.exposed_seconds = 3, .wire_seconds = 4, .background_wire_seconds = 2, .background_exposed_seconds = 0.5});
  EXPECT_DOUBLE_EQ(statistics.background_hidden_fraction(), 0.75);
  EXPECT_DOUBLE_EQ(StepStatistics().background_hidden_fraction(), 1.0);
}

TEST(StepStatistics, EfficiencyIsComputingAndUpdatingPerStep) {
  StepStatistics statistics;
  for (int i = 0; i < 7; ++i) statistics.add({.seconds = 0.4, .compute_seconds = 0.075, .update_seconds = 0.025});
  EXPECT_DOUBLE_EQ(statistics.efficiency(), 0.25);
  EXPECT_DOUBLE_EQ(StepStatistics().efficiency(), 1.0);
}

Summary example() {
  Summary summary;
  summary.strategy = "local";
  summary.task = "fashion-mnist";
  summary.model = "cnn";
  summary.options = {{"period", "4"}, {"warmup_steps", "0"}};
  summary.parameters = 1234;
  summary.workers = 3;
  summary.seed = 7;
  summary.wall_seconds = 12.34567891;
  summary.samples_per_second = 1000;
  summary.final_loss = 0.25;
  summary.metric = "test_accuracy";
  summary.metric_value = 0.875;
  summary.agreement = true;
  for (int i = 0; i < 9; ++i) {
    summary.steps.add({.t = i,
                       .seconds = 0.020,
                       .compute_seconds = 0.007,
                       .update_seconds = 0.003,
                       .encode_seconds = 0.004,
                       .exposed_seconds = 0.006,
                       .wire_seconds = 0.012,
                       .bytes_sent = 500,
                       .bytes_received = 700});
  }
  return summary;
}

TEST(Summary, JsonHasTheKeysOfTheContractInOrder) {
  const auto json = nlohmann::ordered_json::parse(example().to_json());
  std::vector<std::string> keys;
  for (const auto& entry : json.items()) keys.push_back(entry.key());
  EXPECT_EQ(keys, (std::vector<std::string>{"strategy",
                                            "options",
                                            "task",
                                            "model",
                                            "parameters",
                                            "workers",
                                            "servers",
                                            "batch",
                                            "optimizer",
                                            "lr",
                                            "version",
                                            "host",
                                            "date",
                                            "first_step",
                                            "steps",
                                            "seed",
                                            "wall_seconds",
                                            "samples_per_second",
                                            "step_ms_median",
                                            "compute_ms_median",
                                            "update_ms_median",
                                            "encode_ms_median",
                                            "exposed_ms_median",
                                            "hidden_fraction",
                                            "background_hidden_fraction",
                                            "efficiency",
                                            "bytes_sent_per_step",
                                            "bytes_received_per_step",
                                            "threads",
                                            "voluntary_switches_per_step",
                                            "final_loss",
                                            "test_accuracy",
                                            "agreement",
                                            "interrupted"}));
}

TEST(Summary, JsonHasTheValues) {
  const std::string text = example().to_json();
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["strategy"], "local");
  EXPECT_EQ(json["options"]["period"], 4) << "a number, not a text";
  EXPECT_EQ(json["parameters"], 1234);
  EXPECT_EQ(json["steps"], 9);
  EXPECT_EQ(json["wall_seconds"], 12.3457);
  EXPECT_EQ(json["step_ms_median"], 20.0);
  EXPECT_EQ(json["compute_ms_median"], 10.0) << "the update is a part of it";
  EXPECT_EQ(json["update_ms_median"], 3.0);
  EXPECT_EQ(json["encode_ms_median"], 4.0);
  EXPECT_EQ(json["exposed_ms_median"], 6.0);
  EXPECT_EQ(json["hidden_fraction"], 0.5);
  EXPECT_EQ(json["efficiency"], 0.5);
  EXPECT_EQ(json["bytes_sent_per_step"], 500.0);
  EXPECT_EQ(json["bytes_received_per_step"], 700.0);
  EXPECT_EQ(json["test_accuracy"], 0.875);
  EXPECT_EQ(json["agreement"], true);
  EXPECT_EQ(json["interrupted"], false);
}

TEST(Summary, TheMetricGivesItsKey) {
  Summary summary = example();
  summary.metric = "test_loss";
  const auto json = nlohmann::json::parse(summary.to_json());
  EXPECT_EQ(json["test_loss"], 0.875);
  EXPECT_FALSE(json.contains("test_accuracy"));
}

TEST(Summary, JsonWritesNullForWhatIsNoNumber) {
  Summary summary = example();
  summary.final_loss = std::nan("");
  summary.metric_value = INFINITY;
  const auto json = nlohmann::json::parse(summary.to_json());
  EXPECT_TRUE(json["final_loss"].is_null());
  EXPECT_TRUE(json["test_accuracy"].is_null());
}

TEST(Summary, TextTellsTheOutcome) {
  Summary summary = example();
  EXPECT_NE(summary.to_text().find("test accuracy 87.50 %"), std::string::npos) << summary.to_text();
  EXPECT_NE(summary.to_text().find("bit-identical"), std::string::npos);
  EXPECT_NE(summary.to_text().find("--out DIR keeps"), std::string::npos);
  EXPECT_EQ(summary.to_text().find("interrupted"), std::string::npos);
  summary.agreement = false;
  summary.interrupted = true;
  summary.out = "somewhere";
  EXPECT_NE(summary.to_text().find("DIFFER"), std::string::npos);
  EXPECT_NE(summary.to_text().find("interrupted after 9 steps"), std::string::npos);
  EXPECT_NE(summary.to_text().find("results are in somewhere"), std::string::npos);
}

}  // namespace
}  // namespace slipstream
