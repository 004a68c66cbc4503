// SPDX-License-Identifier: Apache-2.0
//
// Elastic jobs as users run them: workers are killed, frozen and started again, and the training goes on.
#include <algorithm>
#include <csignal>

#include "process/job.h"

namespace slipstream::test {
namespace {

class ElasticJob : public Job {
 protected:
  // At a rate at which a batch of four stays stable whoever is killed, also with the wrong label among the images.
  Words elastic(const Words& flags) const {
    return train(Words{"--workers", "3", "--elastic", "1:3", "--steps", "300", "--lr", "0.01", "--timeout", "4",
                       "--out", path("out")} +
                 flags);
  }
  nlohmann::json summary() const { return nlohmann::json::parse(read_text(path("out/summary.json"))); }

  // Lines of all ledgers that tell of a change.
  std::vector<nlohmann::json> changes() const {
    std::vector<nlohmann::json> all;
    for (const int seat : {0, 1, 2}) {
      std::istringstream lines(read_text(path("out/ledger.rank" + std::to_string(seat) + ".jsonl")));
      for (std::string line; std::getline(lines, line);) {
        auto entry = nlohmann::json::parse(line);
        if (entry.contains("regroup")) all.push_back(std::move(entry));
      }
    }
    return all;
  }

  void expect_survived(const Ended& ended, const std::string& what) const {
    ASSERT_EQ(ended.exit_code, 0) << what << "\n" << ended.err;
    expect_words(ended.err, {"chaos: kill worker", "goes on from step"});
    EXPECT_TRUE(summary()["agreement"].get<bool>()) << what;
    EXPECT_FALSE(changes().empty()) << what;
  }
};

TEST_F(ElasticJob, GoesOnWhenWorkersAreKilled) {
  for (const std::string strategy : {"lags", "dasgd"}) {
    const Ended ended = run(elastic({"--strategy", strategy, "--chaos", "kills=2", "--overwrite", "--batch", "4"}));
    expect_survived(ended, strategy);
  }
}

TEST_F(ElasticJob, GoesOnWhenWorkersWithServersBesideThemAreKilled) {
  for (const std::string strategy : {"bsp", "osp"}) {
    const Ended ended = run(elastic({"--strategy", strategy, "--chaos", "kills=2", "--overwrite", "--batch", "4"}));
    expect_survived(ended, strategy);
  }
}

TEST_F(ElasticJob, GoesOnWithServerProcesses) {
  const Ended ended = run(elastic({"--strategy", "bsp", "--servers", "2", "--chaos", "kills=2", "--chaos-seed", "3"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(summary()["agreement"].get<bool>());
}

TEST_F(ElasticJob, AFrozenWorkerIsGivenUpAndReplaced) {
  const Ended ended = run(elastic({"--chaos", "freezes=1", "--steps", "800", "--timeout", "2"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_words(ended.err, {"chaos: freeze worker", "no sign of life", "goes on from step"});
  EXPECT_TRUE(summary()["agreement"].get<bool>());
}

TEST_F(ElasticJob, EndsWithAReasonWhereTooFewAreLeft) {
  Program job(
      endless({"--workers", "2", "--elastic", "2:2", "--max-restarts", "0", "--timeout", "4", "--join-timeout", "3"}));
  ASSERT_TRUE(job.wait_for(kTraining));
  kill(job.find("--rank", "1"), SIGKILL);
  const Ended ended = job.wait();
  expect_failure(ended, 4, {"1 worker is left of at least 2", "--max-restarts 0 is reached"});
}

// Started by hand: rank 1 is killed and started again, and one that nobody knew of joins.
TEST_F(ElasticJob, WorkersJoinByHand) {
  const std::string port = free_port();
  const auto worker = [&](int rank) {
    return train({"--rank", std::to_string(rank), "--world-size", "2", "--elastic", "1:3", "--master-addr", "127.0.0.1",
                  "--master-port", port, "--timeout", "4", "--steps", "100000000", "--batch", "4"});
  };
  Program first(worker(0));
  {
    Program second(worker(1));
    ASSERT_TRUE(first.wait_for(kTraining));
    second.send(SIGKILL);
    ASSERT_TRUE(first.wait_for("group 2 of 1 worker goes on"));
  }
  Program again(worker(1));
  ASSERT_TRUE(first.wait_for("group 3 of 2 workers goes on"));
  Program third(worker(2));
  ASSERT_TRUE(first.wait_for("group 4 of 3 workers goes on"));
  first.send(SIGINT);
  const Ended ended = first.wait();
  EXPECT_EQ(ended.exit_code, 130) << ended.err;
  expect_words(ended.out, {"the 3 workers' weights are bit-identical"});
  EXPECT_EQ(again.wait().exit_code, 130);
  EXPECT_EQ(third.wait().exit_code, 130);
}

// Checkpoints are written while workers come and go; a smaller job goes on from the last.
TEST_F(ElasticJob, CheckpointsOfAnElasticJobAreResumedByFewerWorkers) {
  const Ended ended =
      run(elastic({"--strategy", "lags", "--chaos", "kills=2", "--checkpoint-every", "40", "--batch", "4"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Ended resumed = run(train({"--strategy", "lags", "--workers", "2", "--steps", "320", "--batch", "4", "--resume",
                                   path("out/checkpoints"), "--out", path("more")}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_words(resumed.err, {"resuming at step 280", "2 workers"});
  EXPECT_EQ(nlohmann::json::parse(read_text(path("more/summary.json")))["steps"], 40);
}

// Servers that are processes of their own stay for the new group.
TEST_F(ElasticJob, AJobWithServersIsResumedWithOtherNumbersOfBoth) {
  const Words bsp{"--strategy", "bsp", "--batch", "4"};
  ASSERT_EQ(run(train(bsp + Words{"--workers", "2", "--servers", "2", "--steps", "12", "--checkpoint-every", "10",
                                  "--out", path("out")}))
                .exit_code,
            0);
  for (const Words& other : {Words{"--workers", "3", "--servers", "1"}, Words{"--workers", "2"}}) {
    const Ended resumed = run(train(bsp + other + Words{"--steps", "15", "--resume", path("out/checkpoints")}));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    expect_words(resumed.err, {"resuming at step 10"});
    expect_words(resumed.out, {"5 steps", "bit-identical"});
  }
}

// Memory, descriptors and threads of a worker that has trained for long are those of one that has trained a little.
TEST_F(ElasticJob, TenThousandStepsLeaveMemoryDescriptorsAndThreadsAsTheyWere) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "all work and no play ";
  files_.write("book.txt", text);
  Program job(slipstream({"train",   "--task",    "text",      "--data",  path("book.txt"),
                          "--width", "8",         "--depth",   "1",       "--heads",
                          "1",       "--context", "8",         "--batch", "1",
                          "--lr",    "0.001",     "--workers", "2",       "--strategy",
                          "lags",    "--steps",   "100000000", "--out",   path("out")}),
              {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}, {"MALLOC_ARENA_MAX", "1"}});
  ASSERT_TRUE(job.wait_for("training transformer on"));
  const pid_t worker = job.find("--rank", "1");
  const auto steps = [&] {
    std::ifstream ledger(path("out/ledger.rank1.jsonl"));
    return std::count(std::istreambuf_iterator<char>(ledger), {}, '\n');
  };
  struct Usage {
    long kilobytes = 0;
    std::ptrdiff_t descriptors = 0, threads = 0;
  };
  const auto usage = [worker] {
    const auto entries = [&](const char* name) {
      return std::distance(std::filesystem::directory_iterator(fmt::format("/proc/{}/{}", worker, name)), {});
    };
    Usage now{.descriptors = entries("fd"), .threads = entries("task")};
    std::ifstream status(fmt::format("/proc/{}/status", worker));
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmRSS:")) now.kilobytes = std::atol(line.c_str() + 6);
    }
    return now;
  };
  ASSERT_TRUE(job.wait_until([&] { return steps() > 1000; }));
  const Usage before = usage();
  ASSERT_TRUE(job.wait_until([&] { return steps() > 11000; }));
  const Usage after = usage();
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.descriptors, before.descriptors);
  // Messages that come early may take a window of 16 MiB, the sample of steps a megabyte; more would be a leak.
  EXPECT_LT(after.kilobytes, before.kilobytes + (24 << 10));
}

TEST_F(ElasticJob, ChaosNeedsAnElasticJob) {
  expect_failure(run(train({"--workers", "2", "--chaos", "kills=1"})), 2, {"--chaos", "--elastic MIN:MAX"});
}

}  // namespace
}  // namespace slipstream::test
