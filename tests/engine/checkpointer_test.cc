// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpointer.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include "kit/sim.h"
#include "task/files.h"

namespace slipstream::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& file) {
  std::vector<std::string> names;
  const SafetensorsFile read(file);
  for (const TensorView& tensor : read.tensors()) names.push_back(tensor.name);
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(CheckpointEvery, ReadsStepsAndTimes) {
  EXPECT_TRUE(CheckpointEvery::parse("").never());
  EXPECT_TRUE(CheckpointEvery::parse("0").never());
  EXPECT_EQ(CheckpointEvery::parse("500").steps, 500);
  EXPECT_EQ(CheckpointEvery::parse("90s").seconds, 90);
  EXPECT_EQ(CheckpointEvery::parse("10min").seconds, 600);
  EXPECT_EQ(CheckpointEvery::parse("1.5h").seconds, 5400);
  for (const char* bad : {"often", "-3", "2.5", "10m", "0s", "5 min", "nan", "1e99"}) {
    EXPECT_THROW(CheckpointEvery::parse(bad), ConfigError) << bad;
  }
}

TEST(Checkpointer, WhatAllRanksHoldAlikeIsWrittenOnce) {
  const TempDir files;
  for (const auto& [strategy, alike] : {std::pair{"ssgd", true}, std::pair{"local", false}}) {
    auto job = sim_job({strategy, {}}, 3, 6);
    job.checkpoints = {.folder = files.path() / strategy, .every = {.steps = 5}};  // local averages after 4
    ASSERT_TRUE(run_sim_job(job).agreement());
    const auto checkpoint = find_checkpoint(files.path() / strategy);
    EXPECT_EQ(has(names_in(checkpoint / shared_file()), "model/layer0"), alike);
    EXPECT_EQ(has(names_in(checkpoint / rank_file(2)), "model/layer0"), !alike);
    EXPECT_EQ(has(names_in(checkpoint / rank_file(0)), "optim/velocity"), !alike);
  }
}

TEST(Checkpointer, ByTheClockAllRanksSaveAtTheSameSteps) {
  const TempDir files;
  auto job = sim_job({"ssgd", {}}, 3, 300);  // a step takes 10 ms and something on the wire
  job.compute_factors = {1.0, 1.3, 0.7};
  job.checkpoints = {.folder = files.path(), .every = {.seconds = 0.5}};
  const auto result = run_sim_job(job);
  ASSERT_TRUE(result.agreement());
  std::int64_t count = 0;
  for (const auto& entry : fs::directory_iterator(files.path())) {
    if (!entry.is_directory()) continue;
    ++count;
    const auto meta = CheckpointMeta::read(entry.path());
    for (int rank = 0; rank < 3; ++rank) EXPECT_NO_THROW(read_rank(entry.path(), meta, rank));
  }
  EXPECT_NEAR(static_cast<double>(count), result.seconds / 0.5, 0.4 * result.seconds / 0.5);
}

// The step of the only checkpoint of a job of 30 steps, about 0.5 s, where one is due every 0.4 s.
std::int64_t only_save(double seconds_before) {
  const TempDir files;
  auto job = sim_job({"ssgd", {}}, 2, 30);
  job.checkpoints = {.folder = files.path(), .every = {.seconds = 0.4}, .seconds_before = seconds_before};
  EXPECT_TRUE(run_sim_job(job).agreement());
  return CheckpointMeta::read(find_checkpoint(files.path())).step;
}

TEST(Checkpointer, TheClockGoesOnFromAnEarlierGroup) {
  const std::int64_t usual = only_save(0);
  EXPECT_GT(usual, 20);
  EXPECT_NEAR(static_cast<double>(only_save(0.2)), 0.5 * static_cast<double>(usual), 4);
}

TEST(Checkpointer, AFailureIsToldTrainingGoesOnAndTheNextIsTried) {
  const TempDir files;
  const fs::path in_the_way = files.write("file", "x");
  const auto usual = run_sim_job(sim_job({"ssgd", {}}, 2, 13));
  auto job = sim_job({"ssgd", {}}, 2, 13);
  std::vector<std::string> told;
  job.checkpoints = {.folder = in_the_way / "below", .every = {.steps = 4}, .warn = [&](const std::string& text) {
                       told.push_back(text);
                     }};
  job.on_step_end = [&](int rank, std::int64_t t, std::span<const float>) {
    if (rank == 0 && t == 9) fs::remove(in_the_way);  // steps 4 and 8 have failed
  };
  expect_same_weights(run_sim_job(job), usual);
  ASSERT_GE(told.size(), 2U);
  EXPECT_NE(told[0].find("checkpoint of step 4 was not written"), std::string::npos) << told[0];
  EXPECT_NE(told[0].find(in_the_way.string()), std::string::npos) << told[0];
  EXPECT_EQ(find_checkpoint(in_the_way / "below"), in_the_way / "below" / "step-000012");
}

TEST(Checkpointer, ADamagedFileEndsTheResumeWithItsName) {
  const TempDir files;
  auto job = sim_job({"local", {}}, 2, 6);
  job.checkpoints = {.folder = files.path(), .every = {.steps = 5}};
  ASSERT_TRUE(run_sim_job(job).agreement());
  const fs::path victim = find_checkpoint(files.path()) / rank_file(1);
  fs::resize_file(victim, fs::file_size(victim) - 1);
  job.checkpoints.reset();
  job.resume_from = files.path();
  expect_error<DataError>([&] { run_sim_job(job); }, {victim.string(), "at byte"});
}

}  // namespace
}  // namespace slipstream::test
