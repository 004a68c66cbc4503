// SPDX-License-Identifier: Apache-2.0
#include "compare/cell.h"

#include <fcntl.h>
#include <signal.h>
#include <slipstream/base/clock.h>
#include <slipstream/base/error.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoint/atomic_file.h"
#include "compare/peer.h"
#include "launch/crew.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

json read_record(const fs::path& folder) {
  const auto record = json::parse(read_text(folder / "cell.json"), nullptr, false);
  return record.is_object() ? record : json();
}

// Runs in the child: its output goes to files, and it computes with one thread.
void prepare_child(const fs::path& folder) {
  const auto redirect = [](const fs::path& file, int flags, int to) {
    const int fd = open(file.c_str(), flags | O_CLOEXEC, 0666);
    if (fd < 0 || dup2(fd, to) < 0) fail<ConfigError>("cannot open {}", file.string());
  };
  redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  redirect(folder / "stdout.txt", O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  redirect(folder / "log.txt", O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) setenv(name, "1", 1);
}

}  // namespace

std::string cause_of_death(const std::string& log) {
  std::istringstream lines(log);
  std::string first_error, last;
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.rfind('\r') == std::string::npos ? 0 : line.rfind('\r') + 1);  // drop a progress line before it
    line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty()) continue;
    last = line;
    std::string lower = line;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    const bool tells = lower.find("error") != std::string::npos || line.starts_with("slipstream: ");
    if (first_error.empty() && tells) first_error = line;
  }
  if (last.empty()) return "it said nothing";
  constexpr std::size_t kLongest = 400;
  return (first_error.empty() ? last : first_error).substr(0, kLongest);
}

std::optional<double> CellFolder::finished_seconds(const Cell& cell) const {
  const json record = read_record(folder(cell));
  if (record.is_null() || !record.value("failed", "?").empty()) return std::nullopt;
  return record.value("seconds", 0.0);
}

std::optional<CellOutcome> CellFolder::outcome(const GridPlan& plan, const Cell& cell) const {
  const json record = read_record(folder(cell));
  if (record.is_null()) return std::nullopt;
  CellOutcome outcome;
  outcome.failed = record.value("failed", "");
  outcome.seconds = record.value("seconds", 0.0);
  if (!outcome.failed.empty()) return outcome;
  const Row& row = plan.row_of(cell);
  try {
    outcome.run = row.peer ? peer_run(read_text(folder(cell) / "stdout.txt"), row.contender, plan.scenario_of(row).link)
                           : read_run(folder(cell));
    if (!outcome.run->metric.empty() && !std::isfinite(outcome.run->metric_value)) {
      outcome.failed = "its result is not a number: the training diverged";
    }
  } catch (const DataError& e) {
    outcome.failed = e.what();
  }
  if (!outcome.failed.empty()) outcome.run.reset();
  return outcome;
}

std::vector<std::string> CellFolder::command(const std::vector<std::string>& program, const Cell& cell) const {
  std::vector<std::string> words = program;
  for (const std::string& word : cell.arguments) words.push_back(word == kPeerScript ? (out_ / word).string() : word);
  if (cell.arguments.front() == "train") words.insert(words.end(), {"--out", folder(cell).string()});
  return words;
}

bool CellFolder::run(const std::vector<std::string>& program, const Cell& cell, double timeout_seconds,
                     const std::function<void()>& tick) const {
  const fs::path place = folder(cell);
  std::error_code error;
  fs::remove_all(place, error);
  if (!error) fs::create_directories(place, error);
  if (error) fail<ConfigError>("cannot make {}: {}", place.string(), error.message());

  const SteadyClock clock;
  const double began = clock.now();
  bool too_long = false;
  CrewRules rules;
  rules.interruption_kills = true;
  rules.on_tick = [&](const std::vector<pid_t>& pids) {
    tick();
    if (clock.now() - began < timeout_seconds || pids.front() == 0) return;
    too_long = true;
    kill(pids.front(), SIGKILL);  // its own children end with it
  };
  const std::vector<std::string> words = command(program, cell);
  const CrewOutcome ended = run_crew({{words, [&place] { prepare_child(place); }}}, rules);
  if (ended.interrupted) return false;
  std::string failed;
  if (too_long) {
    failed = fmt::format("no end after {:.0f} s", timeout_seconds);
  } else if (ended.first_failure) {
    failed = fmt::format("it {}: {}", ended.first_failure->how, cause_of_death(read_text(place / "log.txt")));
  }
  const json record{{"command", words}, {"seconds", clock.now() - began}, {"failed", failed}};
  write_atomically(place / "cell.json", record.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  return true;
}

}  // namespace slipstream
