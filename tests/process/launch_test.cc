// SPDX-License-Identifier: Apache-2.0
//
// Every way to start a job ends in the same weights as our own supervisor.
#include "process/job.h"

namespace slipstream::test {
namespace {

class Launch : public Job {
 protected:
  Words job(const std::string& out, const Words& flags = {}) const {
    return train(Words{"--steps", "8", "--out", path(out)} + flags);
  }
  void expect_two_workers_in(const std::string& out) const {
    const auto summary = read_json(path(out) + "/summary.json");
    EXPECT_EQ(summary["workers"], 2);
    EXPECT_EQ(summary["agreement"], true);
    const Ended supervised = run(job("supervised", {"--workers", "2"}), kOneThread);
    ASSERT_EQ(supervised.exit_code, 0) << supervised.err;
    EXPECT_EQ(read_text(path(out) + "/model.pt"), read_text(path("supervised/model.pt")));
  }
  // The rounding of a matrix product may depend on the number of threads.
  static inline const Variables kOneThread{{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}};
};

TEST_F(Launch, ByTorchrunsEnvironmentGivesTheSameWeights) {
  const std::string port = free_port();
  Program first(job("env"), torchrun_variables(1, 2, port) + kOneThread);
  const Ended zero = run(job("env"), torchrun_variables(0, 2, port) + kOneThread);
  EXPECT_EQ(zero.exit_code, 0) << zero.err;
  EXPECT_EQ(first.wait().exit_code, 0);
  expect_two_workers_in("env");
}

TEST_F(Launch, ByHandGivesTheSameWeights) {
  const std::string port = free_port();
  Program first(job("hand", by_hand(1, 2, port)), kOneThread);
  const Ended zero = run(job("hand", by_hand(0, 2, port)), kOneThread);
  EXPECT_EQ(zero.exit_code, 0) << zero.err;
  const Ended one = first.wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  expect_words(one.err, {"rank 1 of 2 has joined"});
  expect_two_workers_in("hand");
}

// Rank 0's --out decides whether there is a trace; every rank's whether it has a ledger.
TEST_F(Launch, OneRankMayKeepResultsAndTheOtherNot) {
  for (const int keeper : {0, 1}) {
    const std::string port = free_port(), out = "kept_by_" + std::to_string(keeper);
    const auto rank = [&](int r) {
      return train(Words{"--steps", "8"} + (r == keeper ? Words{"--out", path(out)} : Words{}) + by_hand(r, 2, port));
    };
    Program first(rank(1));
    const Ended zero = run(rank(0));
    EXPECT_EQ(zero.exit_code, 0) << zero.err;
    EXPECT_EQ(first.wait().exit_code, 0);
    EXPECT_TRUE(std::filesystem::exists(path(out + "/ledger.rank" + std::to_string(keeper) + ".jsonl")));
    EXPECT_EQ(std::filesystem::exists(path(out + "/trace.json")), keeper == 0);
    if (keeper == 0) expect_words(read_text(path(out + "/trace.json")), {"rank 0", "rank 1"});
  }
}

Words torchrun() {
  return {interpreter(), SLIPSTREAM_TORCHRUN, "--master_port", free_port(), "--nproc_per_node", "2", "--no_python"};
}

TEST_F(Launch, ByTorchrunGivesTheSameWeights) {
  const Ended ended = run(torchrun() + job("torchrun"), kOneThread);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_two_workers_in("torchrun");
}

// torchrun starts both workers again when one is lost.
TEST_F(Launch, ATorchrunWithRestartsGoesOnFromTheLatestCheckpoint) {
  const Words flags{"--out", path("out"), "--checkpoint-every", "5", "--resume", "latest"};
  Program job(torchrun() + Words{"--max_restarts", "1"} + train(Words{"--steps", "400", "--batch", "4"} + flags),
              kOneThread);
  ASSERT_TRUE(job.wait_until([&] { return std::filesystem::exists(path("out/checkpoints/latest")); }));
  kill(job.find("--out", path("out")), SIGKILL);
  const Ended ended = job.wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_words(ended.err, {"starting from the beginning", "resuming at step"});
  const auto summary = read_json(path("out/summary.json"));
  EXPECT_EQ(summary["agreement"], true);
  EXPECT_LT(summary["steps"], 400);
  std::int64_t next = 0;
  std::istringstream lines(read_text(path("out/ledger.rank1.jsonl")));
  for (std::string line; std::getline(lines, line); ++next) EXPECT_EQ(nlohmann::json::parse(line)["step"], next);
  EXPECT_EQ(next, 400);
}

TEST_F(Launch, AStoreOfTorchrunThatDoesNotAnswerIsToldInOneLine) {
  const Variables agent{{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RUN_ID", "none"}};
  const Ended ended =
      run(train({"--steps", "2", "--join-timeout", "1"}), torchrun_variables(1, 2, free_port()) + agent + kOneThread);
  expect_failure(ended, 4, {"torchrun's store does not answer"});
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
}

TEST_F(Launch, ByMpirunGivesTheSameWeights) {
  Program mpirun(Words{"mpirun", "-n", "2", "--allow-run-as-root", "--oversubscribe"} + job("mpi"), kOneThread);
  const Ended ended = mpirun.wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_two_workers_in("mpi");
  EXPECT_TRUE(mpirun.all_gone());
}

TEST_F(Launch, WithoutAnyHintStartsTwoLocalWorkers) {
  const Ended ended = run(job("plain"), kOneThread);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_two_workers_in("plain");
}

TEST_F(Launch, FlagsBeatTheEnvironment) {
  const Ended ended = run(train({"--steps", "2", "--workers", "1", "--json"}), torchrun_variables(0, 2, free_port()));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(nlohmann::json::parse(ended.out)["workers"], 1);
}

TEST_F(Launch, PutsTheStoreOfLocalWorkersOnThePortOfTheUser) {
  const Ended ended = run(train({"--steps", "2", "--workers", "2", "--master-port", free_port()}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
}

TEST_F(Launch, NamesAnEnvironmentVariableThatIsNoNumber) {
  expect_failure(run(train({}), {{"RANK", "first"}, {"WORLD_SIZE", "2"}}), 2, {"RANK", "'first'"});
}

}  // namespace
}  // namespace slipstream::test
