// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of real jobs: what is trained does not depend on being saved, stopped, killed or resumed.
#include "process/job.h"

namespace slipstream::test {
namespace {

namespace fs = std::filesystem;

// The rounding of a matrix product may depend on the number of threads.
const Variables kOneThread{{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}};

class Checkpoint : public Job {
 protected:
  Ended train_20(const std::string& out, const Words& flags) const {
    return run(train(Words{"--workers", "2", "--steps", "20", "--out", path(out)} + flags), kOneThread);
  }
  std::string model(const std::string& out) const { return read_text(path(out) + "/model.pt"); }

  std::vector<std::int64_t> ledger_steps(const std::string& out) const {
    std::istringstream lines(read_text(path(out) + "/ledger.rank1.jsonl"));
    std::vector<std::int64_t> steps;
    for (std::string line; std::getline(lines, line);) steps.push_back(nlohmann::json::parse(line)["step"]);
    return steps;
  }

  void expect_resumes(const Words& flags) const {
    const Ended whole = train_20("whole", flags);
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    const Ended saving = train_20("saving", flags + Words{"--checkpoint-every", "12"});
    ASSERT_EQ(saving.exit_code, 0) << saving.err;
    EXPECT_EQ(model("saving"), model("whole")) << "saving changed the training";
    const Ended resumed = train_20("resumed", flags + Words{"--resume", path("saving/checkpoints")});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    expect_words(resumed.err, {"resuming at step 12"});
    EXPECT_EQ(model("resumed"), model("whole"));
    EXPECT_EQ(ledger_steps("resumed"), (std::vector<std::int64_t>{12, 13, 14, 15, 16, 17, 18, 19}));
  }
};

TEST_F(Checkpoint, ResumedEqualsUninterruptedWhereWorkersAgree) { expect_resumes({"--lr-schedule", "cosine"}); }
TEST_F(Checkpoint, ResumedEqualsUninterruptedWhereWorkersDiffer) {
  expect_resumes({"--strategy", "local", "--set", "period=8", "--optimizer", "adamw"});
}
TEST_F(Checkpoint, ResumedEqualsUninterruptedWhereAnAverageIsUnderWay) {
  expect_resumes({"--strategy", "dasgd", "--set", "period=4", "--set", "delay=3"});
}
TEST_F(Checkpoint, ResumedEqualsUninterruptedWithServerProcesses) {
  expect_resumes({"--strategy", "ssd", "--servers", "1"});
}

TEST_F(Checkpoint, AKilledJobGoesOnFromItsLatest) {
  {
    Program job(endless({"--workers", "2", "--out", path("out"), "--checkpoint-every", "10"}), kOneThread);
    ASSERT_TRUE(job.wait_until([&] { return fs::exists(path("out/checkpoints/step-000030/meta.json")); }));
  }  // all of it is killed here
  const Ended ended = run(
      train({"--workers", "2", "--steps", "100000000", "--out", path("out"), "--checkpoint-every", "10"}), kOneThread);
  expect_failure(ended, 2, {"--out", "earlier run", "--resume latest"});

  std::string latest = read_text(path("out/checkpoints/latest"));
  latest.pop_back();
  const std::string end = std::to_string(std::stoll(latest.substr(5)) + 7);
  const Words same{"--workers", "2", "--steps", end};
  const Ended resumed = run(train(same + Words{"--out", path("out"), "--resume", "latest"}), kOneThread);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  ASSERT_EQ(run(train(same + Words{"--out", path("whole")}), kOneThread).exit_code, 0);
  EXPECT_EQ(model("out"), model("whole"));
  const auto steps = ledger_steps("out");
  ASSERT_EQ(steps.size(), static_cast<std::size_t>(std::stoll(end)));
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<std::int64_t>(i));
}

TEST_F(Checkpoint, AStopOnRequestCanBeResumed) {
  {
    Program job(endless({"--workers", "2", "--out", path("out"), "--checkpoint-every", "10h"}), kOneThread);
    ASSERT_TRUE(job.wait_for(kTraining));
    job.send(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 130);
  }
  const auto done = static_cast<std::int64_t>(read_json(path("out/summary.json"))["steps"]);
  EXPECT_EQ(ledger_steps("out").size(), static_cast<std::size_t>(done)) << "the ledger has what the summary counts";
  const Words same{"--workers", "2", "--steps", std::to_string(done + 3)};
  const Ended resumed = run(train(same + Words{"--out", path("out"), "--resume", "latest"}), kOneThread);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  ASSERT_EQ(run(train(same + Words{"--out", path("whole")}), kOneThread).exit_code, 0);
  EXPECT_EQ(model("out"), model("whole"));
}

TEST_F(Checkpoint, WhereItCannotBeWrittenTrainingGoesOnAndSaysSo) {
  files_.write("file", "x");
  const Ended ended = train_20("out", {"--checkpoint-every", "6", "--checkpoint-dir", path("file") + "/below"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_words(ended.err, {"checkpoint of step 6 was not written", path("file"), "training goes on", "step 12"});
}

TEST_F(Checkpoint, AnotherJobIsRefusedWithTheDifference) {
  ASSERT_EQ(train_20("a", {"--checkpoint-every", "12"}).exit_code, 0);
  const std::string from = path("a/checkpoints");
  expect_failure(train_20("b", {"--resume", from, "--seed", "7"}), 2, {"seed", "= 1", "has 7"});
  expect_failure(train_20("c", {"--resume", from, "--strategy", "local"}), 2, {"strategy", "ssgd", "local"});
  expect_failure(train_20("d", {"--resume", path("nowhere")}), 3, {path("nowhere")});
}

TEST_F(Checkpoint, TheVerbInspectsVerifiesAndConverts) {
  ASSERT_EQ(train_20("out", {"--strategy", "local", "--set", "period=8", "--checkpoint-every", "20"}).exit_code, 0);
  const std::string from = path("out/checkpoints");
  const Ended inspected = run(slipstream({"ckpt", "inspect", from}));
  EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
  expect_words(inspected.out, {"step 20", "strategy local", "period = 8", "model/first.weight F32 [1024, 64]",
                               "optim/velocity", "rank-1.safetensors"});
  EXPECT_EQ(run(slipstream({"ckpt", "verify", from})).exit_code, 0);
  const Ended converted = run(slipstream({"ckpt", "convert", from, path("model.pt")}));
  EXPECT_EQ(converted.exit_code, 0) << converted.err;
  const Ended loaded = python(
      "import sys, torch\n"
      "a, b = torch.load(sys.argv[1]), torch.load(sys.argv[2])\n"
      "assert set(a) == set(b) and all(a[k].shape == b[k].shape for k in a)\n"
      "print(max((a[k] - b[k]).abs().max().item() for k in a))\n",
      {path("model.pt"), path("out/model.pt")});
  EXPECT_EQ(loaded.exit_code, 0) << loaded.err;
  EXPECT_LT(std::stod(loaded.out), 1e-6) << "the mean over the ranks is what finish() makes";

  const std::string victim = from + "/step-000020/rank-1.safetensors";
  std::string bytes = read_text(victim);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  std::ofstream(victim, std::ios::binary) << bytes;
  expect_failure(run(slipstream({"ckpt", "verify", from})), 3, {victim, "byte"});
  expect_failure(run(slipstream({"ckpt", "inspect", path("out/model.pt")})), 3, {"model.pt", "byte"});
  expect_failure(train_20("x", {"--strategy", "local", "--set", "period=8", "--resume", from}), 3, {victim});
}

}  // namespace
}  // namespace slipstream::test
