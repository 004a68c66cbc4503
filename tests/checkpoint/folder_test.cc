// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "checkpoint/atomic_file.h"
#include "kit/fuzz.h"
#include "task/files.h"

namespace slipstream::test {
namespace {

namespace fs = std::filesystem;

// A complete checkpoint of two ranks in which every number is the step.
CheckpointMeta write_example(const fs::path& folder, std::int64_t step, std::int64_t keep = 0, std::size_t count = 4) {
  begin_checkpoint(folder, step);
  CheckpointMeta meta{.step = step, .workers = 2, .strategy = "local", .options = {{"period", "4"}}};
  meta.tensors = {{"model/w", {2, static_cast<std::int64_t>(count) / 2}}, {"buffer/b", {1}}};
  StateArchive shared;
  shared.put("buffer/b", std::vector<float>{static_cast<float>(step)});
  meta.files[shared_file()] = write_safetensors(step_folder(folder, step) / shared_file(), shared.tensors({}));
  for (int rank = 0; rank < 2; ++rank) {
    StateArchive own;
    own.put("model/w", std::vector<float>(count, static_cast<float>(step + rank)));
    meta.files[rank_file(rank)] =
        write_safetensors(step_folder(folder, step) / rank_file(rank), own.tensors(meta.shapes()));
  }
  complete_checkpoint(folder, meta, keep);
  return meta;
}

TEST(CheckpointFolder, TheLatestIsFoundAndHoldsWhatWasWritten) {
  const TempDir dir;
  const auto folder = dir.path() / "checkpoints";
  EXPECT_FALSE(has_checkpoint(folder));
  write_example(folder, 20);
  const auto meta = write_example(folder, 40);
  EXPECT_EQ(find_checkpoint(folder), folder / "step-000040");
  EXPECT_EQ(find_checkpoint(folder / "step-000020"), folder / "step-000020");
  const auto read = CheckpointMeta::read(find_checkpoint(folder));
  EXPECT_EQ(read.to_json(), meta.to_json());
  const StateArchive one = read_rank(find_checkpoint(folder), read, 1);
  EXPECT_EQ(std::get<std::vector<float>>(one.entries().at("model/w")), std::vector<float>(4, 41));
  EXPECT_EQ(std::get<std::vector<float>>(one.entries().at("buffer/b")), std::vector<float>{40});
  const StateArchive model = read_model(find_checkpoint(folder), read);
  EXPECT_EQ(std::get<std::vector<float>>(model.entries().at("w")), std::vector<float>(4, 40.5F)) << "the ranks' mean";
}

TEST(CheckpointFolder, OnlyTheNewestAreKeptAndOnlyOnceThereIsANewOne) {
  const TempDir dir;
  for (std::int64_t step : {10, 20, 30}) write_example(dir.path(), step, 2);
  EXPECT_FALSE(fs::exists(dir.path() / "step-000010"));
  EXPECT_TRUE(fs::exists(dir.path() / "step-000020" / "meta.json"));
  begin_checkpoint(dir.path(), 40);
  EXPECT_TRUE(fs::exists(dir.path() / "step-000020" / "meta.json"));
}

TEST(CheckpointFolder, WritingAStepAgainLeavesTheOneBeforeAsTheLatest) {
  const TempDir dir;
  for (std::int64_t step : {10, 20, 30}) write_example(dir.path(), step);
  begin_checkpoint(dir.path(), 20);  // a job that went on from step 10
  EXPECT_EQ(find_checkpoint(dir.path()), dir.path() / "step-000010");
  begin_checkpoint(dir.path(), 10);
  EXPECT_FALSE(has_checkpoint(dir.path()));
  EXPECT_THROW(find_checkpoint(dir.path()), DataError);
}

TEST(CheckpointFolder, DamageIsNamedWithTheFile) {
  const TempDir dir;
  write_example(dir.path(), 10);
  const auto checkpoint = find_checkpoint(dir.path());
  const auto meta = CheckpointMeta::read(checkpoint);
  const auto refusal = [&](const std::string& file, const std::string& content) {
    const auto path = checkpoint / file;
    const auto aside = dir.path() / "aside";
    fs::rename(path, aside);
    if (!content.empty()) std::ofstream(path, std::ios::binary) << content;
    std::string text;
    try {
      read_rank(checkpoint, CheckpointMeta::read(checkpoint), 1);
    } catch (const DataError& e) {
      text = e.what();
    }
    fs::rename(aside, path);
    return text;
  };
  for (const char* file : {"shared.safetensors", "rank-1.safetensors", "meta.json"}) {
    EXPECT_NE(refusal(file, "").find(file), std::string::npos) << refusal(file, "");
    EXPECT_NE(refusal(file, "{\"version\": 1}").find("byte"), std::string::npos) << refusal(file, "{\"version\": 1}");
    EXPECT_NE(refusal(file, "{nonsense").find("byte"), std::string::npos);
  }
  EXPECT_NE(refusal("meta.json", R"({"version": 9})").find("version 9"), std::string::npos);
  dir.write("latest", "../../etc");
  EXPECT_THROW(find_checkpoint(dir.path()), DataError);
}

TEST(CheckpointFolder, AJobThatDiffersIsRefusedWithTheDifference) {
  const TempDir dir;
  const CheckpointMeta saved = write_example(dir.path(), 10);
  const auto refusal = [&](const auto& change) {
    CheckpointMeta job = saved;
    change(job);
    try {
      job.require_fits(saved, "here");
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal([](CheckpointMeta&) {}), "");
  EXPECT_EQ(refusal([](CheckpointMeta& m) { m.workers = 3; }), "") << "the group may be another one";
  EXPECT_NE(refusal([](CheckpointMeta& m) { m.options[0].second = "8"; }).find("period = 4, this job has 8"),
            std::string::npos);
  EXPECT_NE(refusal([](CheckpointMeta& m) { m.run = {{"batch", "16"}}; }).find("batch"), std::string::npos);
  EXPECT_NE(refusal([](CheckpointMeta& m) { m.tensors[0].second = {4}; }).find("'model/w' of shape [2, 2]"),
            std::string::npos);
}

TEST(AtomicFile, IsThereAsAWholeOrNotAtAll) {
  const TempDir dir;
  write_atomically(dir.path() / "x", "old");
  {
    AtomicFile file(dir.path() / "x");
    file.write(std::as_bytes(std::span("new", 3)));
  }  // not committed
  std::string text;
  std::ifstream(dir.path() / "x") >> text;
  EXPECT_EQ(text, "old");
  EXPECT_FALSE(fs::exists(dir.path() / "x.tmp"));
  EXPECT_THROW(write_atomically(dir.path() / "no" / "folder", "x"), ConfigError);
}

// A process that writes checkpoints without end is killed at any moment, also in the middle of a write.
TEST(CheckpointFolder, AKilledWriterLeavesTheLastOrTheNewCheckpointLoadable) {
  const TempDir dir;
  std::mt19937_64 random(1);
  std::int64_t next = 1, found = 0, loaded = 0;
  const auto began = std::chrono::steady_clock::now();
  write_example(dir.path() / "timed", 1, 2, 20'000);
  const auto one = std::chrono::steady_clock::now() - began;  // kills come within the time of some of these
  for (std::uint64_t kill_no = 0; kill_no < fuzz_seeds(40); ++kill_no) {
    const pid_t writer = fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      try {
        for (std::int64_t step = next;; ++step) write_example(dir.path(), step, 2, 20'000);
      } catch (...) {
      }
      _exit(1);
    }
    std::this_thread::sleep_for(one * static_cast<int>(random() % 1000) / 250);
    ASSERT_EQ(kill(writer, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
    if (!has_checkpoint(dir.path())) {
      EXPECT_EQ(found, 0) << "there was one before";
      continue;
    }
    const auto checkpoint = find_checkpoint(dir.path());
    const auto meta = CheckpointMeta::read(checkpoint);
    EXPECT_GE(meta.step, found);
    found = meta.step;
    ++loaded;
    for (int rank = 0; rank < 2; ++rank) {
      const StateArchive state = read_rank(checkpoint, meta, rank);
      EXPECT_EQ(std::get<std::vector<float>>(state.entries().at("model/w")),
                std::vector<float>(20'000, static_cast<float>(meta.step + rank)));
    }
    next = random() % 2 == 0 ? found + 1 : std::max<std::int64_t>(1, found - 1);  // go on, or write some again
    if (next <= found) found = 0;                                                 // `latest` may move back then
  }
  EXPECT_GT(loaded, 0);  // how many depends on when the kills come: one may leave none, where steps are written again
}

}  // namespace
}  // namespace slipstream::test
