// SPDX-License-Identifier: Apache-2.0
//
// --lab: workers in network namespaces of their own. Where this test may not make any, the program has to say so.
#include <algorithm>
#include <iterator>
#include <set>

#include "lab/net_namespace.h"
#include "process/job.h"

namespace slipstream::test {
namespace {

namespace fs = std::filesystem;

// The namespaces a process lives in or holds open, as "net:[4026531840]".
std::set<std::string> namespaces_of(pid_t pid) {
  const fs::path process = "/proc/" + std::to_string(pid);
  std::vector<fs::path> links{process / "ns/net"};
  std::error_code gone;  // processes end while we look
  for (fs::directory_iterator fd(process / "fd", gone), end; !gone && fd != end; fd.increment(gone)) {
    links.push_back(fd->path());
  }
  std::set<std::string> found;
  for (const fs::path& link : links) {
    const std::string target = fs::read_symlink(link, gone).string();
    if (target.starts_with("net:[")) found.insert(target);
  }
  return found;
}

std::set<std::string> namespaces_of_the_machine() {
  std::set<std::string> all;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    if (const pid_t pid = std::atoi(entry.path().filename().c_str()); pid > 0) all.merge(namespaces_of(pid));
  }
  return all;
}

class LabJob : public Job {
 protected:
  // What every lab says to those who may not make one; true if we are among them.
  bool is_refused(const Words& flags) const {
    if (NetNamespace::permitted()) return false;
    expect_failure(run(train(flags)), 2, {"needs root"});
    return true;
  }

  // The namespaces of a job that trains, without the one this test lives in.
  static std::set<std::string> namespaces_of_job(const Program& job) {
    std::set<std::string> made;
    for (const pid_t pid : job.processes()) made.merge(namespaces_of(pid));
    made.erase(*namespaces_of(getpid()).begin());
    return made;
  }
  // A process that ends gives up its memory, by which all_gone() knows it, before its namespaces.
  static void expect_gone(const Program& job, const std::set<std::string>& made) {
    EXPECT_TRUE(job.all_gone());
    std::set<std::string> left;
    job.wait_until([&] {
      const auto all = namespaces_of_the_machine();
      left.clear();
      std::set_intersection(made.begin(), made.end(), all.begin(), all.end(), std::inserter(left, left.end()));
      return left.empty();
    });
    EXPECT_TRUE(left.empty()) << testing::PrintToString(left);
  }
};

TEST_F(LabJob, TrainsAndLeavesNoNamespace) {
  const Words flags = {"--lab", "100mbit", "--workers", "2", "--steps", "5", "--out", path("out")};
  if (is_refused(flags)) return;
  Program job(train(flags));
  ASSERT_TRUE(job.wait_for(kTraining));
  const auto made = namespaces_of_job(job);
  const Ended ended = job.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_words(ended.err, {"10.88.0.1 on e0"});
  EXPECT_EQ(read_json(path("out/summary.json"))["agreement"], true);
  EXPECT_EQ(made.size(), 3U) << "two hosts and the hub";
  expect_gone(job, made);
}

TEST_F(LabJob, LeavesNothingBehindWhenItsSupervisorIsKilled) {
  for (const char* spec : {"100mbit", "100mbit,1ms"}) {
    const Words flags = {"--lab", spec, "--workers", "2"};
    if (is_refused(flags)) return;
    Program job(endless(flags));
    ASSERT_TRUE(job.wait_for(kTraining));
    const auto made = namespaces_of_job(job);
    EXPECT_EQ(made.size(), 3U) << "two hosts and the hub";
    job.send(SIGKILL);
    job.wait();
    expect_gone(job, made);
  }
}

// Two workers sum in every step: what one of them sends arrives 20 ms later, so no step can be shorter.
TEST_F(LabJob, TrainsOverADistance) {
  const Words flags = {"--lab", "100mbit,20ms,0.1%", "--workers", "2", "--steps", "8", "--out", path("out")};
  if (is_refused(flags)) return;
  Program job(train(flags));
  ASSERT_TRUE(job.wait_for(kTraining));
  const auto made = namespaces_of_job(job);
  const Ended ended = job.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto summary = read_json(path("out/summary.json"));
  EXPECT_EQ(summary["agreement"], true);
  EXPECT_GE(summary["step_ms_median"], 20);
  expect_gone(job, made);
}

// Ctrl-C reaches the whole group at once, and what was trained so far is still finished, over the network.
TEST_F(LabJob, AnElasticOneGoesOnWhenACableIsPulled) {
  const Words flags = {"--lab",     "none", "--workers", "3",   "--elastic", "1:3", "--chaos", "cuts=1",
                       "--timeout", "2",    "--steps",   "800", "--batch",   "4",   "--out",   path("out")};
  if (is_refused(flags)) return;
  const Ended ended = run(train(flags));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_words(ended.err, {"chaos: cut worker", "no sign of life", "goes on from step"});
  EXPECT_EQ(read_json(path("out/summary.json"))["agreement"], true);
}

TEST_F(LabJob, CtrlCFinishesCleanlyOverADistance) {
  const Words flags = {"--lab", "100mbit,1ms", "--workers", "2", "--out", path("out")};
  if (is_refused(flags)) return;
  Program job(endless(flags), {}, Program::Terminal::kOwn);
  ASSERT_TRUE(job.wait_for(kTraining));
  job.type("\x03");
  const Ended ended = job.wait();
  EXPECT_EQ(ended.exit_code, 130) << ended.err;
  EXPECT_EQ(read_json(path("out/summary.json"))["agreement"], true);
  EXPECT_TRUE(job.all_gone());
}

TEST_F(LabJob, NeedsTheRightToMakeInterfaces) {
  const Words flags = {"--lab", "100mbit", "--workers", "2", "--steps", "2"};
  if (is_refused(flags)) return;
  const Ended ended = run(Words{"setpriv", "--bounding-set", "-sys_admin,-net_admin"} + train(flags));
  expect_failure(ended, 2, {"needs root"});
}

TEST_F(LabJob, RefusesARateItCannotRead) {
  expect_failure(run(train({"--lab", "nonsense", "--workers", "2"})), 2, {"`nonsense`", "100mbit"});
}

}  // namespace
}  // namespace slipstream::test
