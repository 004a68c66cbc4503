// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/hash.h"
#include "wire/secret.h"

namespace slipstream {
namespace {

std::int64_t to_number(const std::string& name, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) {
    fail<ConfigError>("the environment variable {} is '{}', not a number", name, text);
  }
  return value;
}

// A port that all processes of one job derive alike and that two jobs hardly ever share. Linux gives the ports from 32768
// on to connections of whoever asks, so they may be taken.
int port_of_job(const std::string& job) {
  constexpr int kFirst = 20000, kEnd = 32000;
  return kFirst + static_cast<int>(hash_bytes(std::as_bytes(std::span(job))) % (kEnd - kFirst));
}

// "node[03-07,12],other" → "node03"
std::string first_node(const std::string& list) {
  const auto bracket = list.find('[');
  const auto comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const auto end = list.find_first_of(",-]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

// One of `size` processes, the last of which are servers.
void finish_worker(Placement& p, std::int64_t rank, std::int64_t size, const LaunchOptions& options) {
  const std::int64_t servers = options.servers;
  const bool elastic = !options.elastic.empty();  // then others may join
  if (size - servers < 1) {
    fail<ConfigError>("{}: a job needs at least one worker; {} processes with --servers {} leave {}", p.source, size,
                      servers, size - servers);
  }
  if (rank >= size && !elastic) {
    fail<ConfigError>("{}: rank {} is outside a job of {} processes", p.source, rank, size);
  }
  p.at.rank = static_cast<int>(rank);
  p.at.size = static_cast<int>(size - servers);
  p.at.servers = static_cast<int>(servers);
}

}  // namespace

void LaunchOptions::describe(OptionSet& o) {
  o.integer("workers", workers, {1, 4096}, kChangesResult,
            "start this many local worker processes (default 2, unless torchrun, mpirun or srun started us)");
  o.integer("servers", servers, {0, 1024}, kChangesSpeed,
            "for strategies with parameter servers: this many processes only serve, the last ones of the job; 0: every "
            "worker's process holds a share");
  o.integer("rank", rank, {0, 4095}, kChangesResult, "several machines by hand: this process's number, from 0");
  o.integer("world_size", world_size, {1, 4096}, kChangesResult, "several machines by hand: processes in all");
  o.text("master_addr", master_addr, kChangesSpeed, "several machines by hand: host of rank 0");
  o.integer("master_port", master_port, {1, 65535}, kChangesSpeed, "port where the workers find each other");
  o.text("interface", interface, kChangesSpeed, "network interface for the data, for example eth0");
  o.real_or_auto(
      "timeout", timeout, {1, 86400}, kChangesSpeed,
      "seconds without a sign of life after which a process is lost, and after which an operation that hangs is an "
      "error; auto: 30, and 20 times the longest step, 120 to 3600");
  o.real("join_timeout", join_timeout, {1, 86400}, kChangesSpeed, "seconds to wait for all workers at the start");
  o.text(
      "secret_file", secret_file, kChangesSpeed,
      "a file with the job's secret, the same on all machines: nobody joins without it, and all traffic is encrypted "
      "(also: the environment variable SLIPSTREAM_SECRET)");
  o.integer("streams", streams, {0, 64}, kChangesSpeed,
            "connections to each peer; 0: one; several where it is far and TCP slows down at losses");
  o.text("elastic", elastic, kChangesSpeed,
         "MIN:MAX workers: when one is lost the others go on, as long as MIN are left; a local one is started again, "
         "and others may join, up to MAX (also: MIN, with MAX as many as started)");
  o.integer("max_restarts", max_restarts, {0, 1'000'000}, kChangesSpeed,
            "--elastic: how many times in all a lost local process is started again");
  o.text("chaos", chaos, kChangesSpeed,
         "disturb the run to see that it survives: kills=N,freezes=M,cuts=K processes at random times (with --elastic; "
         "cuts need --lab; freezes and cuts last as long as --timeout)");
  o.integer("chaos_seed", chaos_seed, {0, 1'000'000'000}, kChangesSpeed, "seed of --chaos");
  o.choice(
      "sums", sums, {"auto", "mesh", "c10d"}, kChangesSpeed,
      "engine of dense fp32 sums: our own connections or c10d over Gloo; auto is the first, which was faster on every "
      "network measured");
  o.text(
      "lab", lab, kChangesSpeed,
      "put every local worker into a network namespace of its own, its port shaped to this rate: 100mbit, 1gbit, none; "
      "with the one-way delay between workers: 100mbit,25ms, and the part of all frames that is lost: "
      "100mbit,25ms,0.1% "
      "(needs root)");
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

std::optional<std::array<std::byte, 32>> given_key(const LaunchOptions& options, const Environment& environment) {
  if (!options.secret_file.empty()) return key_of(read_secret_file(options.secret_file));
  if (const auto secret = environment("SLIPSTREAM_SECRET"); secret && !secret->empty()) return key_of(*secret);
  return std::nullopt;
}

namespace {

Placement placed(const LaunchOptions& options, const Environment& environment) {
  const auto number = [&](const std::string& name) { return to_number(name, environment(name).value_or("0")); };
  Placement p;
  p.at.interface = !options.interface.empty() ? options.interface : environment("GLOO_SOCKET_IFNAME").value_or("");
  p.at.timeout_seconds = options.timeout.value_or(0);
  p.at.streams = static_cast<int>(options.streams);
  p.at.sums = options.sums;
  p.at.supervised = options.supervised();
  if (const auto key = given_key(options, environment)) {
    p.at.key = *key;
    p.at.encrypted = true;
    if (options.sums == "c10d") {
      fail<ConfigError>("--sums c10d cannot be encrypted; leave it out, or the secret");
    }
  } else if (const auto made = environment(kJobKeyVariable); made && options.supervised()) {
    const auto key = key_from_hex(*made);
    if (!key) {
      fail<ConfigError>("the environment variable {} is not a key; it is for Slipstream's own use", kJobKeyVariable);
    }
    p.at.key = *key;
  }
  p.at.join_timeout_seconds = options.join_timeout;

  if (options.rank >= 0 || options.world_size > 0) {
    p.source = "command line";
    if (options.rank < 0 || options.world_size == 0) {
      fail<ConfigError>("--rank and --world-size belong together; give both, with --master-addr and --master-port");
    }
    if ((options.world_size > 1 || !options.elastic.empty()) && options.master_addr.empty()) {
      fail<ConfigError>("--rank and --world-size need --master-addr, the host of rank 0");
    }
    if (options.workers > 0 && !options.supervised()) {
      fail<ConfigError>(
          "--workers starts local workers, --rank makes this process one of several; leave out one of them");
    }
    if (!options.lab.empty() && !options.supervised()) {
      fail<ConfigError>("--lab makes the workers itself; leave out --rank and --world-size");
    }
    finish_worker(p, options.rank, options.world_size, options);
    p.at.master_addr = options.master_addr;
    p.at.master_port = options.master_port > 0 ? static_cast<int>(options.master_port) : 29500;
    p.at.hosts = p.at.rank == 0 && !options.supervised();
    return p;
  }
  if (options.workers > 0 || !options.lab.empty()) {
    p.supervisor = true;
    p.workers = options.workers > 0 ? static_cast<int>(options.workers) : 2;
    return p;
  }

  const std::string given_addr =
      !options.master_addr.empty() ? options.master_addr : environment("MASTER_ADDR").value_or("");
  const std::int64_t given_port = options.master_port > 0 ? options.master_port : number("MASTER_PORT");
  p.at.hosts = true;  // narrowed down to rank 0 below
  if (environment("RANK") && environment("WORLD_SIZE")) {
    p.source = "torchrun";
    finish_worker(p, number("RANK"), number("WORLD_SIZE"), options);
    p.at.master_addr = given_addr.empty() ? "127.0.0.1" : given_addr;
    p.at.master_port = given_port > 0 ? static_cast<int>(given_port) : 29500;
    // torchrun's agent already holds a store on that port; through it the ranks learn where to meet.
    if (environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True") {
      p.at.hosts = false;
      p.at.store_prefix = environment("TORCHELASTIC_RUN_ID").value_or("run") + "/" +
                          environment("TORCHELASTIC_RESTART_COUNT").value_or("0");
    }
  } else if (environment("OMPI_COMM_WORLD_RANK")) {
    p.source = "Open MPI";
    finish_worker(p, number("OMPI_COMM_WORLD_RANK"), number("OMPI_COMM_WORLD_SIZE"), options);
    if (given_addr.empty() && environment("OMPI_COMM_WORLD_LOCAL_SIZE") != environment("OMPI_COMM_WORLD_SIZE")) {
      fail<ConfigError>(
          "mpirun uses several hosts and does not tell where rank 0 runs; add -x MASTER_ADDR=HOST, the host "
          "of rank 0");
    }
    p.at.master_addr = given_addr.empty() ? "127.0.0.1" : given_addr;
    const std::string job = environment("PMIX_NAMESPACE").value_or(environment("OMPI_MCA_ess_base_jobid").value_or(""));
    p.at.master_port = given_port > 0 ? static_cast<int>(given_port) : port_of_job(job);
  } else if (environment("SLURM_PROCID") && environment("SLURM_STEP_NUM_TASKS")) {  // srun; sbatch alone sets no step
    p.source = "SLURM";
    finish_worker(p, number("SLURM_PROCID"), number("SLURM_STEP_NUM_TASKS"), options);
    p.at.master_addr =
        !given_addr.empty() ? given_addr : first_node(environment("SLURM_STEP_NODELIST").value_or("127.0.0.1"));
    p.at.master_port =
        given_port > 0
            ? static_cast<int>(given_port)
            : port_of_job(environment("SLURM_JOB_ID").value_or("") + "." + environment("SLURM_STEP_ID").value_or(""));
  } else {
    p.supervisor = true;
    p.workers = 2;
    return p;
  }
  p.at.hosts = p.at.hosts && p.at.rank == 0;
  return p;
}

}  // namespace

Placement place(const LaunchOptions& options, const Environment& environment) {
  Placement p = placed(options, environment);
  const int started = p.supervisor ? p.workers : p.at.size;
  const Elastic elastic = elastic_range(options.elastic, started);
  p.at.min_workers = elastic.min_workers;
  p.at.max_workers = elastic.max_workers;
  if (!elastic) return p;
  if (options.sums == "c10d") fail<ConfigError>("--elastic needs the mesh for sums; leave out --sums c10d");
  if (!p.at.store_prefix.empty()) {
    fail<ConfigError>(
        "--elastic does not go with torchrun, which restarts all workers of a machine when one is lost; use its "
        "--max-restarts with our --checkpoint-every and --resume latest");
  }
  return p;
}

Elastic elastic_range(const std::string& text, int started) {
  if (text.empty()) return {};
  Elastic range{0, started};
  const char* const end = text.data() + text.size();
  const auto lower = std::from_chars(text.data(), end, range.min_workers);
  bool good = lower.ec == std::errc{};
  if (good && lower.ptr != end) {
    good = *lower.ptr == ':';
    const auto upper = std::from_chars(lower.ptr + 1, end, range.max_workers);
    good = good && upper.ec == std::errc{} && upper.ptr == end;
  }
  if (!good || range.min_workers < 1 || range.max_workers < range.min_workers) {
    fail<ConfigError>("--elastic {} is not MIN:MAX, such as 2:4: numbers of workers from 1 on", text);
  }
  if (started < range.min_workers || started > range.max_workers) {
    fail<ConfigError>("--elastic {}: this job starts with {} workers, which is outside of it", text, started);
  }
  return range;
}

std::string slow_blas_warning(const std::string& maps) {
  for (const char* fast : {"openblas", "libmkl", "libblis", "atlas"}) {
    if (maps.find(fast) != std::string::npos) return "";
  }
  if (maps.find("libblas.so") == std::string::npos) return "";
  return "WARNING: libtorch computes with the reference BLAS here, which is about 16 times slower than need be.\n"
         "         Cure: apt-get install libopenblas0-pthread";
}

}  // namespace slipstream
