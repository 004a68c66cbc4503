// SPDX-License-Identifier: Apache-2.0
//
// The local supervisor: holds the rendezvous, so that any worker may die, and reports which one did.
#include <fcntl.h>
#include <linux/close_range.h>
#include <slipstream/base/clock.h>
#include <slipstream/base/error.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "lab/lab.h"
#include "runtime/chaos.h"
#include "runtime/launch.h"
#include "wire/hub.h"
#include "wire/patience.h"

namespace slipstream {
namespace {

// A pipe through which workers tell what went wrong, so that a failure that all of them found is printed once.
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
  // What was written so far, in order, without repetitions.
  std::vector<Complaint> distinct() {
    std::string all;
    char part[4096];
    for (ssize_t n; (n = read(ends_[0], part, sizeof part)) > 0;) all.append(part, static_cast<std::size_t>(n));
    std::vector<Complaint> found;
    for (std::size_t end; (end = all.find('\0')) != std::string::npos; all.erase(0, end + 1)) {
      const Complaint one = Complaint::parse(all.substr(0, end));
      if (std::find(found.begin(), found.end(), one) == found.end()) found.push_back(one);
    }
    return found;
  }

 private:
  int ends_[2];
};

// Called in a child: the command inherits only this file and the standard ones. If a worker inherited a connection of
// the hub, the connection would stay open after the hub closes it.
void keep_open_only(int file) {
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  fcntl(file, F_SETFD, 0);
}

// After SIGINT or SIGTERM to any worker, all workers stop at one step and end with this code. Then the first one to end
// is not to blame, and the others need not hurry.
bool stopped_on_request(const CrewFailure& failure) {
  return failure.signal == 0 && failure.exit_code == Interrupted("").exit_code();
}

// What the supervisor of an elastic job does about its processes: it restarts lost ones, kills silent ones, and
// inflicts --chaos. Runs on the crew's thread, except silent() and hopeless().
class Survival {
 public:
  Survival(const LaunchOptions& options, int workers, Elastic elastic, const Lab* lab)
      : options_(options), workers_(workers), elastic_(elastic), lab_(lab) {
    if (!options.chaos.empty()) chaos_.emplace(options.chaos, static_cast<std::uint64_t>(options.chaos_seed));
    if (chaos_ && !elastic) fail<ConfigError>("--chaos ends a job that is not --elastic; add --elastic MIN:MAX");
    if (chaos_ && chaos_->cuts() && lab == nullptr) {
      fail<ConfigError>("--chaos cuts=… takes cables out of a --lab; add one, such as --lab none");
    }
  }

  // Called on the hub's thread: the process shows no life. It is killed, then restarted like any lost process.
  void silent(int seat) {
    const std::lock_guard lock(mutex_);
    silent_.push_back(seat);
  }

  // Called on the hub's thread: no further group will form.
  void hopeless() { hopeless_ = true; }
  bool is_hopeless() const { return hopeless_; }

  // Lost processes are restarted after 0.1 s, then 0.2, 0.4, … 6.4 s; after a minute without a loss, after 0.1 s again.
  std::optional<double> restart_after(const CrewFailure& failure, Hub& hub) {
    const bool users_fault =
        failure.signal == 0 && failure.exit_code < 126 && failure.exit_code != FabricError("").exit_code();
    if (!elastic_ || users_fault || hopeless_ || stopped_on_request(failure)) return {};
    hub.process_is_gone(failure.member, fmt::format("{} {}", name(failure.member), failure.how));
    heal(failure.member);
    if (total_ >= options_.max_restarts) {
      std::fprintf(stderr, "slipstream: %s %s; --max-restarts %lld is reached, so it is not started again\n",
                   name(failure.member).c_str(), failure.how.c_str(), static_cast<long long>(options_.max_restarts));
      return std::numeric_limits<double>::infinity();  // the others go on without it
    }
    ++total_;
    Restarts& restarts = restarts_[failure.member];
    const double now = clock_.now();
    restarts.in_a_row = now - restarts.last > kCalmSeconds ? 0 : restarts.in_a_row + 1;
    restarts.last = now;
    return kFirstDelay * static_cast<double>(1 << std::min(restarts.in_a_row, 6));
  }

  void tick(const std::vector<pid_t>& pids, const Hub& hub) {
    {
      const std::lock_guard lock(mutex_);
      for (const int seat : silent_) {
        if (seat < static_cast<int>(pids.size()) && pids[static_cast<std::size_t>(seat)] > 0) {
          kill(pids[static_cast<std::size_t>(seat)], SIGKILL);
        }
      }
      silent_.clear();
    }
    if (!chaos_) return;
    std::vector<int> running;  // undisturbed ones only: the job must be able to go on from one of them
    int workers = 0;
    for (const int seat : hub.seats_that_hold()) {
      if (seat >= static_cast<int>(pids.size()) || pids[static_cast<std::size_t>(seat)] <= 0) continue;
      if (disturbed_.contains(seat)) continue;
      running.push_back(seat);
      workers += seat < workers_ ? 1 : 0;
    }
    const int spare = workers - elastic_.min_workers;
    const auto fault = chaos_->next(clock_.now(), running, spare);
    if (fault) inflict(*fault, pids[static_cast<std::size_t>(fault->victim)]);
  }

  void tell_chaos() const {
    if (!chaos_) return;
    std::fprintf(stderr, "chaos: %lld of %lld faults\n", static_cast<long long>(chaos_->done()),
                 static_cast<long long>(chaos_->planned()));
  }

 private:
  static constexpr double kFirstDelay = 0.1, kCalmSeconds = 60;
  struct Restarts {
    int in_a_row = 0;
    double last = -1e9;
  };

  std::string name(int member) const {
    return member >= workers_ ? fmt::format("server {}", member - workers_) : fmt::format("worker {}", member);
  }
  void inflict(const Chaos::Fault& fault, pid_t pid) {
    std::fprintf(stderr, "chaos: %s %s\n", name_of(fault.kind), name(fault.victim).c_str());
    if (fault.kind == Chaos::Kind::kKill) kill(pid, SIGKILL);
    if (fault.kind == Chaos::Kind::kFreeze) kill(pid, SIGSTOP);
    if (fault.kind == Chaos::Kind::kCut) lab_->output_at(fault.victim, "ip", "link set e0 down");
    disturbed_[fault.victim] = fault.kind;
  }
  void heal(int member) {
    const auto found = disturbed_.find(member);
    if (found == disturbed_.end()) return;
    if (found->second == Chaos::Kind::kCut) lab_->output_at(member, "ip", "link set e0 up");
    disturbed_.erase(found);
  }

  const LaunchOptions& options_;
  const int workers_;
  const Elastic elastic_;
  const Lab* const lab_;
  const SteadyClock clock_;
  std::optional<Chaos> chaos_;
  std::map<int, Chaos::Kind> disturbed_;  // until they are restarted
  std::map<int, Restarts> restarts_;      // by member
  std::int64_t total_ = 0;
  std::mutex mutex_;
  std::vector<int> silent_;  // guarded by mutex_
  std::atomic<bool> hopeless_{false};
};

}  // namespace

void Complaint::tell(int supervisor_fd) const {
  const std::string record = std::string{static_cast<char>(code), announced ? 'a' : 'f'} + text + '\0';
  (void)!write(supervisor_fd, record.data(), record.size());
}

Complaint Complaint::parse(const std::string& told) {
  if (told.size() < 2) return {};
  return {static_cast<unsigned char>(told[0]), told.substr(2), told[1] == 'a'};
}

std::vector<Complaint> worth_printing(const std::vector<Complaint>& complaints, bool said) {
  std::vector<Complaint> found;
  std::copy_if(complaints.begin(), complaints.end(), std::back_inserter(found), [](auto& c) { return !c.announced; });
  if (found.empty() && !said && !complaints.empty()) found.push_back(complaints.front());
  return found;
}

int job_exit_code(const CrewFailure& first, const std::vector<Complaint>& complaints) {
  const bool asked_to_end = stopped_on_request(first) || first.signal == SIGINT || first.signal == SIGTERM;
  if (asked_to_end) return Interrupted("").exit_code();
  const int lost = FabricError("").exit_code();
  if (first.exit_code >= 126) return lost;
  // A process that ended because another one failed may end before that one does: then the other one's code counts.
  const auto cause = std::find_if(complaints.begin(), complaints.end(), [&](const auto& c) { return c.code != lost; });
  return first.exit_code == lost && cause != complaints.end() ? cause->code : first.exit_code;
}

int supervise(const LaunchOptions& options, int workers, const std::vector<std::string>& command) {
  const int processes = workers + static_cast<int>(options.servers);
  const Elastic elastic = elastic_range(options.elastic, workers);
  std::optional<Lab> lab;
  if (!options.lab.empty()) lab.emplace(LabSpec::parse(options.lab), processes);
  const auto given = given_key(options, process_environment());
  const Key key = given.value_or(random_key());
  Survival survival(options, workers, elastic, lab ? &*lab : nullptr);
  std::optional<Hub> hub;
  const auto open_hub = [&] {
    hub.emplace(HubOptions{.address = lab ? lab->hub_address() : "127.0.0.1",
                           .port = static_cast<int>(options.master_port),
                           .ranks = processes,
                           .workers = workers,
                           .key = key,
                           .encrypted = given.has_value(),
                           .timeout_seconds = options.timeout.value_or(0),
                           .join_timeout_seconds = options.join_timeout,
                           .on_failure =
                               [&survival](const std::string& text) {
                                 survival.hopeless();
                                 std::fprintf(stderr, "slipstream: %s\n", text.c_str());
                               },
                           .elastic = elastic,
                           .on_silent = [&survival](int seat) { survival.silent(seat); }});
  };
  lab ? lab->at_hub(open_hub) : open_hub();

  Complaints complaints;

  // Workers share the machine: unless the user said otherwise, each computes with its share of the cores.
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency() / static_cast<unsigned>(workers));
  std::vector<CrewMember> members;
  for (int r = 0; r < processes; ++r) {
    CrewMember member{command, [&lab, &key, &complaints, r, threads] {
                        keep_open_only(complaints.write_end());
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

  // A process notices the end of its job at its next wait.
  const double patience = Patience(options.timeout.value_or(0)).waiting();
  CrewRules rules{.patience_seconds = patience};
  if (elastic) {
    rules.restart_after = [&](const CrewFailure& failure) { return survival.restart_after(failure, *hub); };
    rules.counts = [workers](int member) { return member < workers; };  // servers end before results are written
    rules.on_first_good_end = [&hub] { hub->job_is_over(); };
    rules.patience_seconds = std::max(patience, options.join_timeout);  // a starting one must hear of it
    rules.on_tick = [&](const std::vector<pid_t>& pids) { survival.tick(pids, *hub); };
  }
  bool said = false;
  rules.on_first_failure = [&hub, &said, workers](const CrewFailure& failure) {
    if (stopped_on_request(failure)) return;
    const bool serves = failure.member >= workers;
    const std::string text = fmt::format("{} {} {}; the job cannot go on without it", serves ? "server" : "worker",
                                         failure.member - (serves ? workers : 0), failure.how);
    hub->announce(text);
    said = failure.exit_code >= 126;  // it could not say so itself
    if (said) std::fprintf(stderr, "slipstream: %s\n", text.c_str());
  };
  const CrewOutcome outcome = run_crew(std::move(members), rules);
  survival.tell_chaos();
  const bool survived = elastic && !outcome.first_failure;  // then failures were reported when they happened
  const auto told =
      survived ? std::vector<Complaint>() : worth_printing(complaints.distinct(), said || survival.is_hopeless());
  for (const Complaint& one : told) std::fprintf(stderr, "slipstream: %s\n", one.text.c_str());
  if (outcome.interrupted) return Interrupted("").exit_code();
  return outcome.first_failure ? job_exit_code(*outcome.first_failure, told) : 0;
}

}  // namespace slipstream
