// SPDX-License-Identifier: Apache-2.0
#include "launch/crew.h"

#include <signal.h>
#include <slipstream/base/clock.h>
#include <slipstream/base/error.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

namespace slipstream {
namespace {

// kGraceSeconds: from the first failure to SIGTERM, or from the first end after Ctrl-C to SIGKILL. kLastSeconds: from
// SIGTERM to SIGKILL.
constexpr double kGraceSeconds = 5;
constexpr double kLastSeconds = 2;
constexpr int kInterrupted = 130;
constexpr int kNoSuchCommand = 127;

// While this lives, SIGINT, SIGTERM and SIGCHLD are queued and taken one at a time: no handlers, no races.
class TakenSignals {
 public:
  TakenSignals() {
    sigemptyset(&taken_);
    for (int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&taken_, signal);
    pthread_sigmask(SIG_BLOCK, &taken_, &before_);
  }
  ~TakenSignals() { restore(); }
  TakenSignals(const TakenSignals&) = delete;
  TakenSignals& operator=(const TakenSignals&) = delete;

  void restore() const { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  // The next signal; none (si_signo 0) after a while, since a SIGCHLD may go to a thread that does not block it.
  siginfo_t next() const {
    siginfo_t info{};
    const timespec patience{.tv_sec = 0, .tv_nsec = 200'000'000};
    if (sigtimedwait(&taken_, &info, &patience) < 0) info.si_signo = 0;
    return info;
  }

 private:
  sigset_t taken_{};
  sigset_t before_{};
};

// Runs in the child: becomes the command.
[[noreturn]] void become(CrewMember& member, const TakenSignals& signals, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kInterrupted);  // the parent died before the call above
  std::vector<char*> argv;
  for (std::string& word : member.command) argv.push_back(word.data());
  argv.push_back(nullptr);
  try {
    if (member.prepare) member.prepare();
  } catch (const Error& error) {
    dprintf(STDERR_FILENO, "%s\n", error.what());
    _exit(error.exit_code());
  }
  signals.restore();
  execvp(argv[0], argv.data());
  dprintf(STDERR_FILENO, "cannot run `%s`: %s; is it installed and on the PATH?\n", argv[0], std::strerror(errno));
  _exit(kNoSuchCommand);
}

// The children that still run, and what is known about the others.
struct Running {
  std::vector<pid_t> pids;           // by member; 0 once it has ended
  std::vector<double> restart_at{};  // by member, when it is restarted; 0: it is not
  CrewOutcome outcome;
  std::optional<CrewFailure> given_up;  // the first that is not restarted while others go on
  bool ending = false;                  // we asked them to end: how they end says nothing
  bool ended_well = false;              // at least one did
  bool ended_as_asked = false;          // at least one did so; members end together, so the rest has little time left

  ~Running() {
    signal_all(SIGKILL);
    for (pid_t pid : pids) {
      if (pid > 0) waitpid(pid, nullptr, 0);
    }
  }
  bool any() const {
    const bool one_comes = std::any_of(restart_at.begin(), restart_at.end(), [](double at) { return at > 0; });
    return one_comes || std::any_of(pids.begin(), pids.end(), [](pid_t pid) { return pid > 0; });
  }
  void signal_all(int signal) const {
    for (pid_t pid : pids) {
      if (pid > 0) kill(pid, signal);
    }
  }
  // Members end together: one that still runs is stuck.
  void blame_the_last() {
    for (std::size_t i = 0; i < pids.size() && !outcome.first_failure; ++i) {
      if (pids[i] == 0) continue;
      outcome.first_failure = {static_cast<int>(i), 128 + SIGKILL, "did not end when the others had", SIGKILL};
      outcome.worst = 128 + SIGKILL;
    }
  }
  void collect(const CrewRules& rules, double now) {
    for (std::size_t i = 0; i < pids.size(); ++i) {
      int status = 0;
      if (pids[i] == 0 || waitpid(pids[i], &status, WNOHANG) != pids[i]) continue;
      pids[i] = 0;
      ended_as_asked = ended_as_asked || ending;
      const bool exited = WIFEXITED(status);
      const int code = exited ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      ended_well = ended_well || (code == 0 && (!rules.counts || rules.counts(static_cast<int>(i))));
      if (ending || code == 0) continue;
      const CrewFailure failure{
          static_cast<int>(i), code,
          exited ? fmt::format("ended with exit code {}", code)
                 : fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status))),
          exited ? 0 : WTERMSIG(status)};
      const auto again = rules.restart_after ? rules.restart_after(failure) : std::nullopt;
      if (again && std::isinf(*again)) {
        given_up = given_up.value_or(failure);
        continue;
      }
      if (again) {
        restart_at[i] = now + *again;
        continue;
      }
      outcome.worst = std::max(outcome.worst, code);
      if (!outcome.first_failure) outcome.first_failure = failure;
    }
    if (ending || ended_well || outcome.first_failure) std::fill(restart_at.begin(), restart_at.end(), 0);
  }
};

}  // namespace

CrewOutcome run_crew(std::vector<CrewMember> members, const CrewRules& rules) {
  const SteadyClock clock;
  const TakenSignals signals;
  Running running;
  const pid_t self = getpid();
  const auto started = [&](CrewMember& member) {
    std::fflush(nullptr);  // otherwise every child would print it again
    const pid_t child = fork();
    if (child == 0) become(member, signals, self);
    if (child < 0) fail<ConfigError>("cannot start a process: {}; is `ulimit -u` reached?", std::strerror(errno));
    return child;
  };
  for (CrewMember& member : members) running.pids.push_back(started(member));
  running.restart_at.resize(members.size());

  double patience_ends = 0;  // 0: no end in sight
  double deadline = 0;       // when those still running are ended; 0: none in sight
  bool told_good_end = false;
  while (running.collect(rules, clock.now()), running.any()) {
    if (running.outcome.first_failure && deadline == 0) {
      deadline = clock.now() + kGraceSeconds;
      if (rules.on_first_failure) rules.on_first_failure(*running.outcome.first_failure);
    }
    if (running.ended_well && !std::exchange(told_good_end, true) && rules.on_first_good_end) rules.on_first_good_end();
    if (running.ended_well && rules.patience_seconds > 0 && patience_ends == 0) {
      patience_ends = clock.now() + rules.patience_seconds;
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (running.restart_at[i] == 0 || clock.now() < running.restart_at[i]) continue;
      running.restart_at[i] = 0;
      running.pids[i] = started(members[i]);
    }
    if (rules.on_tick) rules.on_tick(running.pids);
    if (patience_ends != 0 && clock.now() > patience_ends) running.blame_the_last();
    if (running.ended_as_asked && deadline == 0) deadline = clock.now() + kGraceSeconds;
    if (deadline != 0 && clock.now() > deadline) {
      running.signal_all(running.ending ? SIGKILL : SIGTERM);
      running.ending = true;
      deadline = clock.now() + kLastSeconds;
    }
    const siginfo_t info = signals.next();
    if (info.si_signo != SIGINT && info.si_signo != SIGTERM) continue;
    // Ctrl-C (from the kernel) reaches the whole foreground group by itself: passing it on would deliver it twice.
    const bool kills = running.outcome.interrupted || rules.interruption_kills;
    if (!kills) {  // in the place of a progress bar, if there is one
      const char* fresh_line = isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "";
      std::fprintf(stderr, "%sslipstream: stopping; once more to stop at once\n", fresh_line);
    }
    if (kills) {
      running.signal_all(SIGKILL);
    } else if (info.si_code != SI_KERNEL) {
      running.signal_all(info.si_signo);
    }
    running.outcome.interrupted = running.ending = true;
  }
  if (!running.ended_well && !running.outcome.first_failure && running.given_up) {
    running.outcome.first_failure = running.given_up;
    running.outcome.worst = running.given_up->exit_code;
  }
  return std::move(running.outcome);
}

}  // namespace slipstream
