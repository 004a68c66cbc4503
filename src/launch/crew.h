// SPDX-License-Identifier: Apache-2.0
//
// Crew: child processes that live and end together, unless their owner wants one restarted. Used by the local
// supervisor and by the lab.
//
// No child outlives this process, however it ends. Ctrl-C and SIGTERM are passed on once, so that children can stop
// cleanly; a second one kills. After the first failure, or the first end after Ctrl-C, the others have some seconds to
// notice and end by themselves, then they are ended. Call it on the main thread of a program without other children.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace slipstream {

struct CrewMember {
  std::vector<std::string> command;
  std::function<void()> prepare;  // in the child, before exec: environment, namespace; may throw Error
};

struct CrewFailure {
  int member = 0;
  int exit_code = 0;  // 128 + n for an end by signal n; 127: no such command
  std::string how{};  // for people: "was killed by signal 9 (Killed)"
  int signal = 0;     // the signal that killed it; 0: it ended by itself
};

struct CrewOutcome {
  bool interrupted = false;
  std::optional<CrewFailure> first_failure;
  int worst = 0;  // the largest exit code of those that were not asked to end
};

struct CrewRules {
  std::function<void(const CrewFailure&)> on_first_failure{};
  // How long the others may run on after one has ended well; 0: without limit. One that does not end in time counts as
  // a failure.
  double patience_seconds = 0;
  // Called when a member has failed. Returns after how many seconds to restart it, which then was no failure; nothing:
  // it was one. Infinity: the others go on without it, and it was a failure only if none of them ends well.
  std::function<std::optional<double>(const CrewFailure&)> restart_after{};
  std::function<void()> on_first_good_end{};  // after it nobody is restarted
  std::function<bool(int member)> counts{};   // whose good end counts; empty: anybody's
  bool interruption_kills = false;  // Ctrl-C and SIGTERM kill: nothing that the members could finish is wanted
  // Called several times a second with the children by member, 0 where none runs.
  std::function<void(const std::vector<pid_t>&)> on_tick{};
};

CrewOutcome run_crew(std::vector<CrewMember> members, const CrewRules& rules = {});

}  // namespace slipstream
