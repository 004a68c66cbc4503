// SPDX-License-Identifier: Apache-2.0
#include "launch/lab_run.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <string>
#include <utility>

#include "slipstream/base/error.h"

namespace slipstream {
namespace {

constexpr int kPatienceMs = 20'000;

// run_in_lab() in a process of its own, with what it printed.
class LabProcess {
 public:
  LabProcess(int hosts, const std::string& script) {
    EXPECT_EQ(pipe(out_), 0);
    std::fflush(nullptr);  // what this process still has to print is not the child's to print
    pid_ = fork();
    if (pid_ != 0) {
      close(out_[1]);
      return;
    }
    dup2(out_[1], STDOUT_FILENO);
    close(out_[0]);
    close(out_[1]);
    try {
      _exit(run_in_lab(LabSpec{}, hosts, {"sh", "-c", script}));
    } catch (const ConfigError&) {
      _exit(2);
    }
  }
  ~LabProcess() { close(out_[0]); }
  LabProcess(const LabProcess&) = delete;
  LabProcess& operator=(const LabProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Reads up to `lines` lines; fewer when everyone who could write has ended.
  std::multiset<std::string> lines(std::size_t lines) {
    std::multiset<std::string> found;
    std::string line;
    char byte = 0;
    pollfd one{out_[0], POLLIN, 0};
    while (found.size() < lines && poll(&one, 1, kPatienceMs) == 1 && read(out_[0], &byte, 1) == 1) {
      if (byte != '\n') {
        line += byte;
      } else {
        found.insert(std::exchange(line, ""));
      }
    }
    return found;
  }
  int exit_code() const {
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  int out_[2] = {-1, -1};
  pid_t pid_ = -1;
};

// Where labs are not permitted every run ends with the configuration error's code and prints nothing.
struct LabRun : testing::Test {
  int expected(int code) const { return NetNamespace::permitted() ? code : 2; }
  std::multiset<std::string> expected(std::multiset<std::string> lines) const {
    return NetNamespace::permitted() ? lines : std::multiset<std::string>{};
  }
};

TEST_F(LabRun, TellsEveryHostWhoItIs) {
  LabProcess run(3, "echo $RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $GLOO_SOCKET_IFNAME");
  EXPECT_EQ(run.lines(99), expected({"0/3 10.88.0.1:29500 e0", "1/3 10.88.0.1:29500 e0", "2/3 10.88.0.1:29500 e0"}));
  EXPECT_EQ(run.exit_code(), expected(0));
}

TEST_F(LabRun, RunsTheCommandInsideTheHost) {
  LabProcess run(2, "ip -o -4 addr show dev e0 | grep -o '10.88.0.[0-9]*/'");
  EXPECT_EQ(run.lines(99), expected({"10.88.0.1/", "10.88.0.2/"}));
  EXPECT_EQ(run.exit_code(), expected(0));
}

TEST_F(LabRun, ReturnsTheWorstExitCode) {
  EXPECT_EQ(LabProcess(3, "exit $((RANK * 3))").exit_code(), expected(6));
  EXPECT_EQ(LabProcess(2, "kill -SEGV $$").exit_code(), expected(128 + SIGSEGV));
}

TEST_F(LabRun, PassesSignalsOnAndReportsTheInterruption) {
  LabProcess run(2, "trap 'echo stopped; exit 0' TERM; echo ready; while :; do :; done");
  EXPECT_EQ(run.lines(2), expected({"ready", "ready"}));
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.lines(99), expected({"stopped", "stopped"}));
  EXPECT_EQ(run.exit_code(), expected(130));
}

TEST_F(LabRun, NoCommandOutlivesTheSupervisor) {
  LabProcess run(2, "echo ready; exec tail -f /dev/null");
  EXPECT_EQ(run.lines(2), expected({"ready", "ready"}));
  kill(run.pid(), SIGKILL);
  EXPECT_EQ(run.exit_code(), NetNamespace::permitted() ? 128 + SIGKILL : 2);
  // The commands hold the other end of the pipe: its end is theirs.
  EXPECT_TRUE(run.lines(1).empty());
}

TEST_F(LabRun, WithoutACommandSaysHowToGiveOne) { EXPECT_THROW(run_in_lab(LabSpec{}, 2, {}), ConfigError); }

}  // namespace
}  // namespace slipstream
