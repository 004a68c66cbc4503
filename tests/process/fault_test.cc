// SPDX-License-Identifier: Apache-2.0
//
// Workers that die, users who press Ctrl-C, supervisors that are killed: the rest ends, says why and leaves nothing
// behind.
#include <memory>

#include "process/job.h"

namespace slipstream::test {
namespace {

class LostWorker : public Job {
 protected:
  void expect_named_by_the_supervisor(int workers, int victim) const {
    Program job(endless({"--workers", std::to_string(workers)}));
    ASSERT_TRUE(job.wait_for(kTraining));
    kill(job.find("--rank", std::to_string(victim)), SIGKILL);
    expect_failure(job.wait(), 4, {"worker " + std::to_string(victim) + " was killed by signal 9"});
    EXPECT_TRUE(job.all_gone());
  }

  // All ranks of a job as torchrun starts them, once they train; rank 0 comes first.
  std::vector<std::unique_ptr<Program>> start(int workers, const Words& flags = {}) const {
    const std::string port = free_port();
    std::vector<std::unique_ptr<Program>> ranks;
    for (int r = 0; r < workers; ++r) {
      ranks.push_back(std::make_unique<Program>(endless(flags), torchrun_variables(r, workers, port)));
    }
    ranks[0]->wait_for(kTraining);
    return ranks;
  }
};

TEST_F(LostWorker, OfTwoIsNamedAndEndsTheJob) { expect_named_by_the_supervisor(2, 1); }
TEST_F(LostWorker, OfThreeIsNamedAndEndsTheJob) { expect_named_by_the_supervisor(3, 1); }
TEST_F(LostWorker, MayBeWorkerZero) { expect_named_by_the_supervisor(3, 0); }

TEST_F(LostWorker, IsNamedByTheSurvivorsWithoutASupervisor) {
  for (const int workers : {2, 3}) {
    const auto ranks = start(workers);
    ranks[1]->send(SIGKILL);
    for (int r = 0; r < workers; ++r) {
      if (r != 1) expect_failure(ranks[static_cast<std::size_t>(r)]->wait(), 4, {"rank 1 is lost"});
    }
  }
}

// Rank 2 hears of rank 1 through rank 0 alone, which also holds the store and leaves first.
TEST_F(LostWorker, IsNamedByThoseWhoOnlyTalkToOthers) {
  for (const char* strategy : {"gs", "gtopk", "sketched"}) {
    const auto ranks = start(3, {"--strategy", strategy});
    ranks[1]->send(SIGKILL);
    for (const std::size_t r : {0U, 2U}) expect_failure(ranks[r]->wait(), 4, {"rank 1 is lost"});
  }
}

TEST_F(LostWorker, ThatHeldTheStoreIsNamedByTheSurvivors) {
  const auto ranks = start(3);
  ranks[0]->send(SIGKILL);
  for (const std::size_t r : {1U, 2U}) expect_failure(ranks[r]->wait(), 4, {"rank 0"});
}

TEST_F(LostWorker, MayBeFrozenInsteadOfDead) {
  const auto ranks = start(2, {"--timeout", "5"});
  ranks[1]->send(SIGSTOP);
  expect_failure(ranks[0]->wait(), 4, {"rank 1 is lost", "no sign of life", "during sum of", "in step"});
}

class Interruption : public Job {
 protected:
  // Starts a job, lets `interrupt` do its work, and looks at what it left.
  template <typename Interrupt>
  void expect_partial_results(Program::Terminal terminal, const Interrupt& interrupt) const {
    Program job(endless({"--workers", "2", "--out", path("out")}), {}, terminal);
    ASSERT_TRUE(job.wait_for(kTraining));
    interrupt(job);
    const Ended ended = job.wait();
    EXPECT_EQ(ended.exit_code, 130) << ended.err;
    expect_words(ended.out, {"interrupted after"});
    expect_words(ended.err, {"stopped after step"});
    EXPECT_EQ(ended.err.find("cannot go on"), std::string::npos) << "nobody is to be blamed: " << ended.err;
    const auto summary = read_json(path("out/summary.json"));
    EXPECT_EQ(summary["interrupted"], true);
    EXPECT_EQ(summary["agreement"], true);
    EXPECT_GT(summary["steps"], 0);
    EXPECT_EQ(largest_difference(path("out/model.pt"), path("out/model.pt")), 0);  // that is, it can be read
    EXPECT_TRUE(job.all_gone());
  }
};

TEST_F(Interruption, ByControlCKeepsPartialResults) {
  expect_partial_results(Program::Terminal::kOwn, [](const Program& job) { job.type("\x03"); });
}

TEST_F(Interruption, OfTheWholeGroupKeepsPartialResults) {
  expect_partial_results(Program::Terminal::kNone, [](const Program& job) { kill(-job.pid(), SIGINT); });
}

TEST_F(Interruption, OfTheSupervisorAloneKeepsPartialResults) {
  expect_partial_results(Program::Terminal::kNone, [](const Program& job) { job.send(SIGINT); });
}

TEST_F(Interruption, BySigtermKeepsPartialResults) {
  expect_partial_results(Program::Terminal::kNone, [](const Program& job) { job.send(SIGTERM); });
}

TEST_F(Interruption, OfOneWorkerStopsAllKeepsPartialResultsAndNamesIt) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Program job(endless({"--workers", "3", "--out", path("out"), "--overwrite"}));
    ASSERT_TRUE(job.wait_for(kTraining));
    kill(job.find("--rank", "2"), signal);
    const Ended ended = job.wait();
    EXPECT_EQ(ended.exit_code, 130) << ended.err;
    expect_words(ended.err, {"as rank 2 was asked to"});
    for (const char* other : {"worker 0", "worker 1", "cannot go on"}) {
      EXPECT_EQ(ended.err.find(other), std::string::npos) << ended.err;
    }
    EXPECT_EQ(read_json(path("out/summary.json"))["interrupted"], true);
    EXPECT_TRUE(job.all_gone());
  }
}

// Before it could have learnt what to do with the signal.
TEST_F(Interruption, OfAWorkerThatHasOnlyJustStartedNamesItToo) {
  Program job(endless({"--workers", "3"}));
  ASSERT_TRUE(job.wait_for_processes(4));
  kill(job.find("--rank", "1"), SIGTERM);
  const Ended ended = job.wait();
  EXPECT_EQ(ended.exit_code, 130) << ended.err;
  EXPECT_TRUE(ended.err.find("rank 1 was asked to") != std::string::npos ||
              ended.err.find("worker 1 was killed by signal 15") != std::string::npos)
      << ended.err;
  EXPECT_TRUE(job.all_gone());
}

TEST_F(Interruption, OfOneRankStopsAllRanksOfAJobWithoutASupervisor) {
  const std::string port = free_port();
  Program one(endless(by_hand(1, 2, port)));
  Program zero(endless(by_hand(0, 2, port)));
  ASSERT_TRUE(zero.wait_for(kTraining));
  one.send(SIGINT);
  EXPECT_EQ(zero.wait().exit_code, 130);
  EXPECT_EQ(one.wait().exit_code, 130);
}

TEST_F(Interruption, WhileWorkersStillWaitForEachOtherLeavesNothingBehind) {
  Program job(endless({"--workers", "3"}));
  ASSERT_TRUE(job.wait_for_processes(4));
  job.send(SIGINT);
  EXPECT_EQ(job.wait().exit_code, 130);
  EXPECT_TRUE(job.all_gone());
}

TEST_F(Interruption, EndsAFrozenWorkerToo) {
  Program job(endless({"--workers", "2", "--timeout", "5"}));
  ASSERT_TRUE(job.wait_for(kTraining));
  kill(job.find("--rank", "1"), SIGSTOP);
  job.send(SIGINT);
  EXPECT_EQ(job.wait().exit_code, 130);
  EXPECT_TRUE(job.all_gone());
}

class KilledSupervisor : public Job {};

TEST_F(KilledSupervisor, LeavesNoWorkerBehind) {
  Program job(endless({"--workers", "3"}));
  ASSERT_TRUE(job.wait_for(kTraining));
  EXPECT_EQ(job.processes().size(), 4U);
  job.send(SIGKILL);
  EXPECT_EQ(job.wait().exit_code, 128 + SIGKILL);
  EXPECT_TRUE(job.all_gone());
}

}  // namespace
}  // namespace slipstream::test
