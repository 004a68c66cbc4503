// SPDX-License-Identifier: Apache-2.0
//
// Launch: what this process is, a worker of a job or the supervisor of a local one, and how the supervisor runs its
// workers. The only place that reads environment variables.
//
// By precedence: --rank … (by hand, or from our own supervisor); --workers N; the environment of torchrun, Open MPI or
// SLURM; else two local workers. With --servers S the last S processes of a job are servers, however it was started.
#pragma once

#include <slipstream/base/option.h>
#include <slipstream/fabric/rendezvous.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/crew.h"
#include "wire/gathering.h"

namespace slipstream {

struct LaunchOptions {
  std::int64_t workers = 0;     // 0: not given
  std::int64_t servers = 0;     // processes that only serve
  std::int64_t rank = -1;       // -1: not given
  std::int64_t world_size = 0;  // 0: not given
  std::string master_addr;
  std::int64_t master_port = 0;
  std::string interface;
  std::optional<double> timeout{};
  double join_timeout = 60;
  std::string secret_file;  // empty: not given
  std::int64_t streams = 0;
  std::string sums = "auto";
  std::string lab;      // empty: no lab
  std::string elastic;  // "MIN:MAX" workers; empty: losing one process ends the job
  std::int64_t max_restarts = 100;
  std::string chaos;  // faults that the supervisor inflicts; empty: none
  std::int64_t chaos_seed = 1;
  int supervisor_fd = -1;  // where a supervised worker reports what went wrong; -1: not supervised

  bool supervised() const { return supervisor_fd >= 0; }

  void describe(OptionSet& o);
};

// A variable's value, or nothing. Tests pass their own.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment process_environment();

struct Placement {
  bool supervisor = false;
  int workers = 1;     // supervisor: how many to start
  Rendezvous at;       // worker: its place in the job
  std::string source;  // for people: "torchrun", "Open MPI", "SLURM", "command line"
};

// The environment variable in which a supervisor passes the key of the job to its workers, as hexadecimal digits.
inline constexpr const char* kJobKeyVariable = "SLIPSTREAM_JOB_KEY";

// The key of a job if the user gave a secret by --secret-file or SLIPSTREAM_SECRET.
std::optional<std::array<std::byte, 32>> given_key(const LaunchOptions& options, const Environment& environment);

// Throws ConfigError where flags or environment contradict each other.
Placement place(const LaunchOptions& options, const Environment& environment);

// Parses --elastic for a job that starts with `started` workers; ConfigError where it makes no sense.
Elastic elastic_range(const std::string& text, int started);

// Runs `command` (our own, without placement flags) as local workers, in a network lab if asked to, and waits for them.
// Returns the exit code of the job.
int supervise(const LaunchOptions& options, int workers, const std::vector<std::string>& command);

// What a supervised worker tells its supervisor when it ends: its exit code and why.
struct Complaint {
  int code = 0;
  std::string text;
  bool announced = false;  // another process found it, and told this one

  void tell(int supervisor_fd) const;               // as two bytes, the text, and a zero byte
  static Complaint parse(const std::string& told);  // without the zero byte
  bool operator==(const Complaint&) const = default;
};

// What the supervisor prints of them: what processes found themselves. An announced failure counts only where neither
// they nor the supervisor (`said`) told anything: its finder may be too slow to tell before it is killed.
std::vector<Complaint> worth_printing(const std::vector<Complaint>& complaints, bool said);

// The exit code of a job, from its first process to fail and from what its processes complained about.
int job_exit_code(const CrewFailure& first, const std::vector<Complaint>& complaints);

// A warning, with the cure, if libtorch computes with the reference BLAS (16 times slower); else empty.
// `maps` is the text of /proc/self/maps.
std::string slow_blas_warning(const std::string& maps);

}  // namespace slipstream
