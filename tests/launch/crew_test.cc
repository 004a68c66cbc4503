// SPDX-License-Identifier: Apache-2.0
//
// No result here depends on how long something takes: processes wait for each other on pipes or in a given order, and
// poll() only bounds a failure.
#include "launch/crew.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <slipstream/base/error.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "task/files.h"

namespace slipstream {
namespace {

CrewMember shell(const std::string& script) { return {{"sh", "-c", script}, {}}; }

// A pipe whose ends a child sees only where it is given them.
struct Pipe {
  int read_end = -1, write_end = -1;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close_write();
    close(read_end);
  }
  void close_write() {
    if (write_end >= 0) close(write_end);
    write_end = -1;
  }

  // What is written until a line ends or nobody can write any more; fails the test after a minute of silence.
  std::string read_line() const {
    std::string text;
    for (char c = 0; c != '\n';) {
      pollfd ready{read_end, POLLIN, 0};
      if (poll(&ready, 1, 60'000) != 1) {
        ADD_FAILURE() << "nothing came after '" << text << "'";
        return text;
      }
      if (read(read_end, &c, 1) != 1) return text;
      text += c;
    }
    return text;
  }
};

TEST(Crew, AllWellIsNoFailure) {
  const CrewOutcome outcome = run_crew({shell("exit 0"), shell("exit 0")});
  EXPECT_FALSE(outcome.first_failure.has_value());
  EXPECT_FALSE(outcome.interrupted);
  EXPECT_EQ(outcome.worst, 0);
}

TEST(Crew, NoMembersAreDoneAtOnce) { EXPECT_FALSE(run_crew({}).first_failure.has_value()); }

TEST(Crew, NamesTheMemberThatFailedAndHow) {
  const CrewOutcome outcome = run_crew({shell("exit 0"), shell("exit 3")});
  ASSERT_TRUE(outcome.first_failure.has_value());
  EXPECT_EQ(outcome.first_failure->member, 1);
  EXPECT_EQ(outcome.first_failure->exit_code, 3);
  EXPECT_EQ(outcome.first_failure->how, "ended with exit code 3");
  EXPECT_EQ(outcome.first_failure->signal, 0);
  EXPECT_EQ(outcome.worst, 3);
}

TEST(Crew, NamesTheSignalThatKilledAMember) {
  const CrewOutcome outcome = run_crew({shell("kill -9 $$")});
  ASSERT_TRUE(outcome.first_failure.has_value());
  EXPECT_EQ(outcome.first_failure->exit_code, 128 + 9);
  EXPECT_EQ(outcome.first_failure->how, "was killed by signal 9 (Killed)");
  EXPECT_EQ(outcome.first_failure->signal, 9);
}

TEST(Crew, AnUnknownCommandIsExitCode127) {
  testing::internal::CaptureStderr();
  const CrewOutcome outcome = run_crew({{{"no-such-command-anywhere"}, {}}});
  ASSERT_TRUE(outcome.first_failure.has_value());
  EXPECT_EQ(outcome.first_failure->exit_code, 127);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("`no-such-command-anywhere`"), std::string::npos);
}

TEST(Crew, AFailedPreparationEndsTheMemberWithItsExitCode) {
  testing::internal::CaptureStderr();
  const CrewOutcome outcome = run_crew({{{"true"}, [] { fail<ConfigError>("no such namespace"); }}});
  ASSERT_TRUE(outcome.first_failure.has_value());
  EXPECT_EQ(outcome.first_failure->exit_code, 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no such namespace"), std::string::npos);
}

TEST(Crew, PreparesInTheChildOnly) {
  const CrewOutcome outcome = run_crew(
      {{{"sh", "-c", "test \"$SLIPSTREAM_CREW_TEST\" = here"}, [] { setenv("SLIPSTREAM_CREW_TEST", "here", 1); }}});
  EXPECT_FALSE(outcome.first_failure.has_value());
  EXPECT_EQ(getenv("SLIPSTREAM_CREW_TEST"), nullptr);
}

// The first life of the member fails, the second ends well: that counts.
TEST(Crew, AMemberIsStartedAgainWhereTheOwnerWantsIt) {
  const test::TempDir dir;
  const std::string mark = (dir.path() / "mark").string();
  std::vector<int> codes;
  const CrewOutcome outcome = run_crew({shell("test -e " + mark + " || { touch " + mark + "; exit 9; }")},
                                       {.restart_after = [&](const CrewFailure& failure) -> std::optional<double> {
                                         codes.push_back(failure.exit_code);
                                         return 0.01;
                                       }});
  EXPECT_EQ(codes, std::vector<int>{9});
  EXPECT_FALSE(outcome.first_failure.has_value());
  EXPECT_EQ(outcome.worst, 0);
}

TEST(Crew, NobodyIsStartedAgainOnceAnotherHasEndedWell) {
  int told = 0;
  const CrewOutcome outcome = run_crew({shell("exit 9"), shell("sleep 0.2"), shell("sleep 0.6")},
                                       {.restart_after = [](const CrewFailure&) { return std::optional(1e6); },
                                        .on_first_good_end = [&told] { ++told; }});
  EXPECT_FALSE(outcome.first_failure.has_value());
  EXPECT_EQ(told, 1);
}

TEST(Crew, TellsWhoRuns) {
  std::vector<pid_t> seen;
  run_crew({shell("sleep 0.5"), shell("exit 0")},
           {.on_tick = [&seen](const std::vector<pid_t>& pids) { seen = pids; }});
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_GT(seen[0], 0);
  EXPECT_EQ(seen[1], 0);
}

// The first one to fail is told at once, while the other still runs: only what the caller does then lets that one end.
TEST(Crew, TellsTheFirstFailureWhileOthersRun) {
  Pipe pipe;
  CrewMember waits = shell("read line; exit 5");
  waits.prepare = [&pipe] { dup2(pipe.read_end, STDIN_FILENO); };
  std::vector<int> told;
  const CrewOutcome outcome = run_crew({waits, shell("exit 3")}, {.on_first_failure = [&](const CrewFailure& failure) {
                                         told.push_back(failure.member);
                                         pipe.close_write();
                                       }});
  EXPECT_EQ(told, std::vector<int>{1}) << "once, for the first";
  ASSERT_TRUE(outcome.first_failure.has_value());
  EXPECT_EQ(outcome.first_failure->exit_code, 3);
  EXPECT_EQ(outcome.worst, 5);
}

// A process that runs a crew of one and ends with exit code 50 + interrupted.
class Supervisor {
 public:
  // The member has `out` as standard output and a standard input that never ends.
  Supervisor(const std::string& script, Pipe& out) {
    pid_ = fork();
    if (pid_ != 0) return;
    for (int number : {SIGINT, SIGTERM}) ::signal(number, SIG_DFL);  // a shell cannot trap what its parent ignored
    CrewMember member = shell(script);
    member.prepare = [this, &out] {
      dup2(out.write_end, STDOUT_FILENO);
      dup2(never_.read_end, STDIN_FILENO);
    };
    _exit(50 + (run_crew({member}).interrupted ? 1 : 0));
  }
  ~Supervisor() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  void signal(int number) const { kill(pid_, number); }
  int exit_code() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  Pipe never_;
  pid_t pid_ = 0;
};

TEST(Crew, NoMemberOutlivesAKilledParent) {
  Pipe out;
  Supervisor supervisor("echo up; exec cat", out);
  out.close_write();
  EXPECT_EQ(out.read_line(), "up\n");
  supervisor.signal(SIGKILL);
  EXPECT_EQ(supervisor.exit_code(), -SIGKILL);
  EXPECT_EQ(out.read_line(), "") << "the pipe ends when the last one who holds it is gone";
}

TEST(Crew, PassesATerminationOnSoThatMembersCanStopCleanly) {
  for (int number : {SIGTERM, SIGINT}) {
    Pipe out;
    Supervisor supervisor("trap 'echo cleanly; exit 0' TERM INT; echo up; while :; do read line || :; done", out);
    out.close_write();
    EXPECT_EQ(out.read_line(), "up\n");
    supervisor.signal(number);
    EXPECT_EQ(out.read_line(), "cleanly\n");
    EXPECT_EQ(supervisor.exit_code(), 51) << "interrupted";
  }
}

TEST(Crew, ASecondTerminationKills) {
  Pipe out;
  Supervisor supervisor("trap 'echo not yet' TERM; echo up; while :; do read line || :; done", out);
  out.close_write();
  EXPECT_EQ(out.read_line(), "up\n");
  supervisor.signal(SIGTERM);
  EXPECT_EQ(out.read_line(), "not yet\n");
  supervisor.signal(SIGTERM);
  EXPECT_EQ(out.read_line(), "");
  EXPECT_EQ(supervisor.exit_code(), 51);
}

}  // namespace
}  // namespace slipstream
