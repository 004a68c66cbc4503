// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <map>

#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;
using Variables = std::map<std::string, std::string>;

Placement placed(const LaunchOptions& options, const Variables& variables = {}) {
  return place(options, [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

void expect_refused(const LaunchOptions& options, const Variables& variables,
                    std::initializer_list<std::string> words) {
  expect_error<ConfigError>([&] { placed(options, variables); }, words);
}

// Options as the command line would set them: given({{"workers", "3"}}).
LaunchOptions given(const Variables& flags) {
  LaunchOptions options;
  OptionSet described("test");
  options.describe(described);
  for (const auto& [name, value] : flags) described.set(name, value);
  return options;
}

LaunchOptions by_hand(int rank, int size) {
  return given({{"rank", std::to_string(rank)}, {"world_size", std::to_string(size)}, {"master_addr", "node7"}});
}

const Variables kTorchrun = {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "4711"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                            {"PMIX_NAMESPACE", "job-17"}};
const Variables kSlurm = {{"SLURM_PROCID", "0"},
                          {"SLURM_STEP_NUM_TASKS", "8"},
                          {"SLURM_STEP_NODELIST", "node[03-07,12],other"},
                          {"SLURM_JOB_ID", "4242"},
                          {"SLURM_STEP_ID", "0"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(Place, AloneItStartsTwoLocalWorkers) {
  const Placement p = placed({});
  EXPECT_TRUE(p.supervisor);
  EXPECT_EQ(p.workers, 2);
}

TEST(Place, WorkersBeatTheEnvironment) {
  for (const Variables& variables : {Variables{}, kTorchrun, kOpenMpi, kSlurm}) {
    const Placement p = placed(given({{"workers", "5"}}), variables);
    EXPECT_TRUE(p.supervisor);
    EXPECT_EQ(p.workers, 5);
  }
}

TEST(Place, ALabIsLocal) {
  EXPECT_TRUE(placed(given({{"lab", "100mbit"}}), kTorchrun).supervisor);
  EXPECT_EQ(placed(given({{"lab", "100mbit"}})).workers, 2);
  EXPECT_EQ(placed(given({{"workers", "3"}, {"lab", "100mbit"}})).workers, 3);
}

TEST(Place, ByHandBeatsAllElse) {
  LaunchOptions options = by_hand(1, 3);
  options.master_port = 1234;
  const Placement p = placed(options, kTorchrun);
  EXPECT_FALSE(p.supervisor);
  EXPECT_EQ(p.source, "command line");
  EXPECT_EQ(p.at.rank, 1);
  EXPECT_EQ(p.at.size, 3);
  EXPECT_EQ(p.at.master_addr, "node7");
  EXPECT_EQ(p.at.master_port, 1234);
  EXPECT_EQ(placed(by_hand(1, 3)).at.master_port, 29500);
}

TEST(Place, ByHandRankZeroHoldsTheStoreUnlessASupervisorDoes) {
  EXPECT_TRUE(placed(by_hand(0, 3)).at.hosts);
  EXPECT_FALSE(placed(by_hand(1, 3)).at.hosts);
  LaunchOptions options = by_hand(0, 3);
  options.supervisor_fd = 5;
  EXPECT_FALSE(placed(options).at.hosts);
  options.lab = "1gbit";  // the supervisor's workers live in the lab that it made
  EXPECT_EQ(placed(options).at.size, 3);
}

TEST(Place, RefusesHalfOfAPlace) {
  expect_refused(given({{"rank", "1"}}), {}, {"--rank", "--world-size"});
  expect_refused(given({{"world_size", "2"}}), {}, {"--rank", "--world-size"});
  expect_refused(given({{"rank", "0"}, {"world_size", "2"}}), {}, {"--master-addr"});
  expect_refused(by_hand(3, 3), {}, {"rank 3", "3 processes"});
  LaunchOptions options = by_hand(0, 2);
  options.lab = "1gbit";
  expect_refused(options, {}, {"--lab", "--rank"});
}

TEST(Place, ReadsTorchrun) {
  const Placement p = placed({}, kTorchrun);
  EXPECT_FALSE(p.supervisor);
  EXPECT_EQ(p.source, "torchrun");
  EXPECT_EQ(p.at.rank, 2);
  EXPECT_EQ(p.at.size, 4);
  EXPECT_EQ(p.at.master_addr, "10.0.0.1");
  EXPECT_EQ(p.at.master_port, 4711);
  EXPECT_FALSE(p.at.hosts);
}

TEST(Place, UnderTorchrunItsAgentHoldsTheStore) {
  const Variables first = with(kTorchrun, "RANK", "0");
  EXPECT_TRUE(placed({}, first).at.hosts);
  EXPECT_FALSE(placed({}, with(first, "TORCHELASTIC_USE_AGENT_STORE", "True")).at.hosts);
}

TEST(Place, ReadsOpenMpiOnOneHost) {
  const Placement p = placed({}, kOpenMpi);
  EXPECT_EQ(p.source, "Open MPI");
  EXPECT_EQ(p.at.rank, 1);
  EXPECT_EQ(p.at.size, 3);
  EXPECT_EQ(p.at.master_addr, "127.0.0.1");
  EXPECT_FALSE(p.at.hosts);
  EXPECT_TRUE(placed({}, with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "0")).at.hosts);
}

TEST(Place, AJobsProcessesDeriveTheSamePortAndOtherJobsAnother) {
  const int port = placed({}, kOpenMpi).at.master_port;
  EXPECT_EQ(placed({}, with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "2")).at.master_port, port);
  EXPECT_NE(placed({}, with(kOpenMpi, "PMIX_NAMESPACE", "job-18")).at.master_port, port);
  EXPECT_NE(placed({}, with(kSlurm, "SLURM_STEP_ID", "1")).at.master_port, placed({}, kSlurm).at.master_port);
  EXPECT_GE(port, 1024);
  EXPECT_LE(port, 65535);
}

TEST(Place, OpenMpiOnSeveralHostsNeedsToBeToldWhereRankZeroIs) {
  const Variables several = with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  expect_refused({}, several, {"MASTER_ADDR", "rank 0"});
  EXPECT_EQ(placed({}, with(several, "MASTER_ADDR", "node1")).at.master_addr, "node1");
  EXPECT_EQ(placed(given({{"master_addr", "node2"}}), several).at.master_addr, "node2");
}

TEST(Place, ReadsSlurm) {
  const Placement p = placed({}, kSlurm);
  EXPECT_EQ(p.source, "SLURM");
  EXPECT_EQ(p.at.rank, 0);
  EXPECT_EQ(p.at.size, 8);
  EXPECT_TRUE(p.at.hosts);
  EXPECT_FALSE(placed({}, with(kSlurm, "SLURM_PROCID", "3")).at.hosts);
}

TEST(Place, FindsTheFirstNodeOfASlurmList) {
  const auto first = [](const std::string& list) {
    return placed({}, with(kSlurm, "SLURM_STEP_NODELIST", list)).at.master_addr;
  };
  EXPECT_EQ(first("node[03-07,12],other"), "node03");
  EXPECT_EQ(first("node[12,14]"), "node12");
  EXPECT_EQ(first("node[5]"), "node5");
  EXPECT_EQ(first("alpha,beta[1-2]"), "alpha");
  EXPECT_EQ(first("alpha"), "alpha");
}

TEST(Place, SbatchAloneIsNoSlurmStep) {
  Variables variables = kSlurm;
  variables.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_TRUE(placed({}, variables).supervisor);
}

TEST(Place, FlagsBeatTheEnvironmentsAddressAndPort) {
  const Placement p = placed(given({{"master_addr", "flag"}, {"master_port", "99"}}), kTorchrun);
  EXPECT_EQ(p.at.master_addr, "flag");
  EXPECT_EQ(p.at.master_port, 99);
}

TEST(Place, TakesTheInterfaceFromTheFlagThenFromGloosVariable) {
  const Variables gloo = {{"GLOO_SOCKET_IFNAME", "eth7"}};
  EXPECT_EQ(placed(by_hand(0, 2), gloo).at.interface, "eth7");
  LaunchOptions options = by_hand(0, 2);
  options.interface = "eth1";
  EXPECT_EQ(placed(options, gloo).at.interface, "eth1");
}

TEST(Place, HandsOnTheTimeouts) {
  LaunchOptions options = by_hand(0, 2);
  options.timeout = 7;
  options.join_timeout = 8;
  EXPECT_EQ(placed(options).at.timeout_seconds, 7.0);
  EXPECT_EQ(placed(options).at.join_timeout_seconds, 8.0);
  EXPECT_EQ(placed(by_hand(0, 2)).at.timeout_seconds, 0.0) << "by itself, see wire/patience.h";
}

TEST(Place, TheLastProcessesOfAJobAreItsServers) {
  LaunchOptions options = by_hand(2, 3);
  options.servers = 1;
  const Placement server = placed(options);
  EXPECT_TRUE(server.at.serves());
  EXPECT_EQ(server.at.rank, 2);
  EXPECT_EQ(server.at.size, 2);
  EXPECT_EQ(server.at.servers, 1);
  const Placement worker = placed(given({{"servers", "1"}}), with(kTorchrun, "WORLD_SIZE", "9"));
  EXPECT_FALSE(worker.at.serves());
  EXPECT_EQ(worker.at.size, 8);
  options.servers = 3;
  expect_refused(options, {}, {"--servers 3", "at least one worker"});
}

TEST(Place, RefusesAnEnvironmentThatMakesNoSense) {
  expect_refused({}, with(kTorchrun, "RANK", "two"), {"RANK", "'two'"});
  expect_refused({}, with(kTorchrun, "RANK", "-1"), {"RANK", "'-1'"});
  expect_refused({}, with(kTorchrun, "RANK", "4"), {"torchrun", "rank 4", "4 processes"});
  expect_refused({}, with(kTorchrun, "WORLD_SIZE", "0"), {"torchrun", "at least one worker"});
  expect_refused({}, with(kTorchrun, "MASTER_PORT", "http"), {"MASTER_PORT", "'http'"});
}

TEST(SlowBlasWarning, WarnsOfTheReferenceLibraryOnly) {
  const std::string reference = "7f00 r-xp /usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0\n";
  EXPECT_NE(slow_blas_warning(reference).find("apt-get install libopenblas0-pthread"), std::string::npos);
  EXPECT_EQ(slow_blas_warning("7f00 r-xp /usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3\n"), "");
  EXPECT_EQ(slow_blas_warning(reference + "7f00 r-xp /opt/mkl/libmkl_rt.so\n"), "");
  EXPECT_EQ(slow_blas_warning("7f00 r-xp /usr/lib/libc.so.6\n"), "");
}

TEST(Place, ElasticIsARangeAroundTheNumberOfWorkers) {
  const Placement local = placed(given({{"workers", "4"}, {"elastic", "2:6"}}));
  EXPECT_TRUE(local.supervisor);
  EXPECT_EQ(local.at.min_workers, 2);
  EXPECT_EQ(local.at.max_workers, 6);
  EXPECT_FALSE(placed(given({{"workers", "4"}})).at.elastic());
  EXPECT_EQ(elastic_range("2", 4).max_workers, 4) << "as many as started";
  for (const std::string text : {"0:4", "3:2", "x", "2:", ":4", "2:4:5", "2-4", "5:6", "1:3", "-1:4", "2:4 "}) {
    expect_error<ConfigError>([&] { elastic_range(text, 4); }, {"--elastic", text});
  }
}

TEST(Place, WorkersMayJoinAnElasticJobBeyondThoseItStartedWith) {
  LaunchOptions options = by_hand(5, 3);
  expect_refused(options, {}, {"rank 5", "3 processes"});
  options.elastic = "1:8";
  EXPECT_EQ(placed(options).at.rank, 5);
  EXPECT_FALSE(placed(options).at.serves());
}

TEST(Place, ElasticRefusesWhatItDoesNotGoWith) {
  expect_refused(given({{"workers", "2"}, {"elastic", "1:2"}, {"sums", "c10d"}}), {}, {"--elastic", "c10d"});
  expect_refused(given({{"elastic", "1:4"}}), with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True"),
                 {"torchrun", "--max-restarts", "--resume latest"});
}

TEST(Complaint, IsReadAsItWasTold) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (const Complaint& one :
       {Complaint{3, "short.txt: too short"}, Complaint{4, "rank 0 is silent", true}, Complaint{130, ""}}) {
    one.tell(ends[1]);
    char record[64];
    const auto length = read(ends[0], record, sizeof record);
    ASSERT_GT(length, 0);
    EXPECT_EQ(record[length - 1], '\0');
    EXPECT_EQ(Complaint::parse(std::string(record, static_cast<std::size_t>(length) - 1)), one);
  }
  close(ends[0]);
  close(ends[1]);
}

// The process that found a failure may be killed before it can tell.
TEST(Complaint, AnAnnouncedFailureIsPrintedWhereNothingElseIs) {
  const Complaint found{4, "rank 0 is silent"}, heard{4, "rank 0 is silent", true}, other{4, "rank 1 is lost", true};
  EXPECT_EQ(worth_printing({heard, other}, false), std::vector{heard});
  EXPECT_EQ(worth_printing({other, found, heard}, false), std::vector{found});
  EXPECT_EQ(worth_printing({found}, true), std::vector{found});
  EXPECT_EQ(worth_printing({heard}, true), std::vector<Complaint>()) << "the supervisor said why";
  EXPECT_EQ(worth_printing({}, false), std::vector<Complaint>());
}

TEST(JobExitCode, IsThatOfWhoFailedByItself) {
  const CrewFailure told{.member = 1, .exit_code = 4, .how = "ended with exit code 4"};
  EXPECT_EQ(job_exit_code(told, {{3, "bad data"}}), 3) << "it only ended earlier than the one with the data";
  EXPECT_EQ(job_exit_code(told, {{4, "worker 0 is silent"}}), 4);
  EXPECT_EQ(job_exit_code(told, {}), 4);
  EXPECT_EQ(job_exit_code({.member = 0, .exit_code = 2}, {{3, "bad data"}}), 2);
  EXPECT_EQ(job_exit_code({.member = 0, .exit_code = 128 + SIGKILL, .signal = SIGKILL}, {{3, "bad data"}}), 4);
  EXPECT_EQ(job_exit_code({.member = 0, .exit_code = 128 + SIGTERM, .signal = SIGTERM}, {}), 130);
  EXPECT_EQ(job_exit_code({.member = 0, .exit_code = 130}, {{4, "worker 0 is lost"}}), 130);
}

}  // namespace
}  // namespace slipstream
