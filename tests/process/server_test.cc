// SPDX-License-Identifier: Apache-2.0
//
// Parameter servers over the real wire: beside the workers and as processes of their own.
#include "process/job.h"

namespace slipstream::test {
namespace {

class Servers : public Job {
 protected:
  nlohmann::json summary_of(const Words& flags) const {
    const Ended ended = run(train(Words{"--steps", "12", "--json"} + flags));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return nlohmann::json::parse(ended.out, nullptr, false);
  }
  std::string model_of(const std::string& name, const Words& flags) const {
    const Ended ended = run(train(Words{"--steps", "12", "--out", path(name)} + flags));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return path(name) + "/model.pt";
  }
};

TEST_F(Servers, WhereverTheyAreTheModelIsTheSameBitForBit) {
  const std::string beside = model_of("beside", {"--workers", "3", "--strategy", "bsp"});
  EXPECT_EQ(largest_difference(beside, model_of("one", {"--workers", "3", "--strategy", "bsp", "--servers", "1"})), 0);
  EXPECT_EQ(largest_difference(beside, model_of("two", {"--workers", "3", "--strategy", "bsp", "--servers", "2",
                                                        "--set", "overlap=false"})),
            0);
  EXPECT_LT(largest_difference(beside, model_of("ssgd", {"--workers", "3"})), 1e-5);
}

TEST_F(Servers, EveryStrategyThatUsesThemRunsWithProcessesOfTheirOwnToo) {
  for (const char* strategy : {"bsp", "ssd", "osp", "asgd", "ssp", "r2sp"}) {
    const auto summary = summary_of({"--workers", "2", "--servers", "2", "--strategy", strategy});
    EXPECT_EQ(summary["agreement"], true) << strategy;
    EXPECT_EQ(summary["servers"], 2);
  }
}

TEST_F(Servers, ThatDieAreNamedAndEndTheJob) {
  Program job(endless({"--workers", "2", "--servers", "2", "--strategy", "ssd"}));
  ASSERT_TRUE(job.wait_for(kTraining));
  kill(job.find("--rank", "3"), SIGKILL);
  expect_failure(job.wait(), 4, {"server 1 was killed by signal 9"});
  EXPECT_TRUE(job.all_gone());
}

TEST_F(Servers, NoticeAWorkerThatDies) {
  Program job(endless({"--workers", "2", "--servers", "1", "--strategy", "bsp"}));
  ASSERT_TRUE(job.wait_for(kTraining));
  kill(job.find("--rank", "1"), SIGKILL);
  expect_failure(job.wait(), 4, {"worker 1 was killed by signal 9"});
  EXPECT_TRUE(job.all_gone());
}

TEST_F(Servers, StopWithTheirWorkersOnCtrlC) {
  Program job(endless({"--workers", "2", "--servers", "1", "--strategy", "osp", "--out", path("out")}));
  ASSERT_TRUE(job.wait_for(kTraining));
  job.send(SIGINT);
  EXPECT_EQ(job.wait().exit_code, 130);
  EXPECT_TRUE(job.all_gone());
  EXPECT_EQ(read_json(path("out") + "/summary.json")["agreement"], true);
}

TEST_F(Servers, AreRefusedWhereTheStrategyHasNoUseForThem) {
  expect_failure(run(train({"--workers", "2", "--servers", "1"})), 2, {"ssgd uses no servers", "--servers"});
}

TEST_F(Servers, AreTheLastRanksOfAJobStartedByHand) {
  const std::string port = free_port();
  const Words flags{"--strategy", "ssp", "--servers", "1", "--steps", "8", "--json"};
  Program server(train(flags + by_hand(2, 3, port)));
  Program second(train(flags + by_hand(1, 3, port)));
  const Ended first = run(train(flags + by_hand(0, 3, port)));
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(second.wait().exit_code, 0);
  EXPECT_EQ(server.wait().exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(first.out)["workers"], 2);
}

TEST(WireBench, TimesPushesAndPullsToo) {
  const Ended ended = run(slipstream({"bench", "wire", "--workers", "2", "--max-mib", "1", "--repeats", "2"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_words(ended.out, {"sum over 2 workers", "push and pull, 2 workers, 2 servers beside them"});
}

}  // namespace
}  // namespace slipstream::test
