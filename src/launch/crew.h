// SPDX-License-Identifier: Apache-2.0
//
// Crew: child processes that live and end together. Used by the local supervisor and by the lab.
//
// No child outlives this process, however it ends. Ctrl-C and SIGTERM are passed on once, so that children can stop
// cleanly; a second one kills. After the first failure, or the first end after Ctrl-C, the others have some seconds to
// notice and end by themselves, then they are ended. To be called on the main thread of a program without other
// children.
#pragma once

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
  std::string how;    // for people: "was killed by signal 9 (Killed)"
  int signal = 0;     // that killed it; 0: it ended by itself
};

struct CrewOutcome {
  bool interrupted = false;
  std::optional<CrewFailure> first_failure;
  int worst = 0;  // the largest exit code of those that were not asked to end
};

// `patience_seconds`: how long the others may still run once one has ended well; 0: as long as they like. One that does
// not end in time counts as a failure.
CrewOutcome run_crew(std::vector<CrewMember> members,
                     const std::function<void(const CrewFailure&)>& on_first_failure = {}, double patience_seconds = 0);

}  // namespace slipstream
