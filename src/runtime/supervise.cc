// SPDX-License-Identifier: Apache-2.0
//
// The local supervisor: holds the rendezvous, so that any worker may die, and names the one that did.
#include <fcntl.h>
#include <slipstream/base/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "lab/lab.h"
#include "launch/crew.h"
#include "runtime/launch.h"
#include "wire/hub.h"

namespace slipstream {
namespace {

// A pipe through which workers tell what went wrong, so that what all of them found is said once.
class Complaints {
 public:
  Complaints() {
    if (pipe2(ends_, O_NONBLOCK) != 0) fail<ConfigError>("cannot open a pipe: {}", std::strerror(errno));
    fcntl(ends_[0], F_SETFD, FD_CLOEXEC);  // the write end is for the workers
  }
  ~Complaints() {
    for (const int end : ends_) close(end);
  }
  int write_end() const { return ends_[1]; }
  // What was written so far, without repetitions, in order. Texts end with a zero byte.
  std::vector<std::string> distinct() {
    std::string all;
    char part[4096];
    for (ssize_t n; (n = read(ends_[0], part, sizeof part)) > 0;) all.append(part, static_cast<std::size_t>(n));
    std::vector<std::string> texts;
    for (std::size_t end; (end = all.find('\0')) != std::string::npos; all.erase(0, end + 1)) {
      const std::string text = all.substr(0, end);
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
    }
    return texts;
  }

 private:
  int ends_[2];
};

// A worker that got SIGINT or SIGTERM stops all workers at one step, and they end with this code; the first of them is
// not to be blamed, nor the rest to be hurried.
bool stopped_on_request(const CrewFailure& failure) {
  return failure.signal == 0 && failure.exit_code == Interrupted("").exit_code();
}

int job_exit_code(const CrewFailure& first) {
  const bool asked_to_end = stopped_on_request(first) || first.signal == SIGINT || first.signal == SIGTERM;
  if (asked_to_end) return Interrupted("").exit_code();
  return first.exit_code >= 126 ? FabricError("").exit_code() : first.exit_code;
}

}  // namespace

int supervise(const LaunchOptions& options, int workers, const std::vector<std::string>& command) {
  const int processes = workers + static_cast<int>(options.servers);
  std::optional<Lab> lab;
  if (!options.lab.empty()) lab.emplace(LabSpec::parse(options.lab), processes);
  const auto given = given_key(options, process_environment());
  const Key key = given.value_or(random_key());
  std::optional<Hub> hub;
  const auto open_hub = [&] {
    hub.emplace(HubOptions{
        .address = lab ? lab->hub_address() : "127.0.0.1",
        .port = static_cast<int>(options.master_port),
        .ranks = processes,
        .workers = workers,
        .key = key,
        .encrypted = given.has_value(),
        .timeout_seconds = options.timeout,
        .join_timeout_seconds = options.join_timeout,
        .on_failure = [](const std::string& text) { std::fprintf(stderr, "slipstream: %s\n", text.c_str()); }});
  };
  lab ? lab->at_hub(open_hub) : open_hub();

  Complaints complaints;

  // Workers share the machine: unless the user said otherwise, each computes with its share of the cores.
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency() / static_cast<unsigned>(workers));
  std::vector<CrewMember> members;
  for (int r = 0; r < processes; ++r) {
    CrewMember member{command, [&lab, &key, r, threads] {
                        if (lab) lab->enter(r);
                        setenv(kJobKeyVariable, to_hex(key).c_str(), 1);
                        for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
                          setenv(name, std::to_string(threads).c_str(), 0);
                        }
                      }};
    for (const auto& [flag, value] : {std::pair<std::string, std::string>{"--rank", std::to_string(r)},
                                      {"--world-size", std::to_string(processes)},
                                      {"--master-addr", lab ? lab->hub_address() : "127.0.0.1"},
                                      {"--master-port", std::to_string(hub->port())},
                                      {"--supervisor-fd", std::to_string(complaints.write_end())}}) {
      member.command.push_back(flag);
      member.command.push_back(value);
    }
    members.push_back(std::move(member));
  }

  const CrewOutcome outcome = run_crew(
      std::move(members),
      [&hub, workers](const CrewFailure& failure) {
        if (stopped_on_request(failure)) return;
        const bool serves = failure.member >= workers;
        const std::string text = fmt::format("{} {} {}; the job cannot go on without it", serves ? "server" : "worker",
                                             failure.member - (serves ? workers : 0), failure.how);
        hub->announce(text);
        if (failure.exit_code >= 126)
          std::fprintf(stderr, "slipstream: %s\n", text.c_str());  // it could not say so itself
      },
      options.timeout);
  for (const std::string& text : complaints.distinct()) std::fprintf(stderr, "slipstream: %s\n", text.c_str());
  if (outcome.interrupted) return Interrupted("").exit_code();
  return outcome.first_failure ? job_exit_code(*outcome.first_failure) : 0;
}

}  // namespace slipstream
