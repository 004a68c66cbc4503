// SPDX-License-Identifier: Apache-2.0
#include "report/run.h"

#include <slipstream/base/error.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace slipstream {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kSkippedSteps = 5;  // as in summary.json: the first steps are not typical
constexpr std::size_t kTimelineSteps = 12;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// NaN for a number that is null or missing.
double number(const json& record, const char* key) {
  const auto found = record.find(key);
  return found == record.end() || found->is_null() ? std::nan("") : found->get<double>();
}

void read_summary(const fs::path& folder, Run& run) {
  const fs::path file = folder / "summary.json";
  if (!is_there(folder)) fail<DataError>("there is no directory {}", folder.string());
  std::ifstream stream(file);
  if (!stream) {
    fail<DataError>(
        "{} has no summary.json that can be read: give the --out directory of a `slipstream train` that ended",
        folder.string());
  }
  try {
    // Ordered: options are listed as their strategy lists them.
    const auto s = nlohmann::ordered_json::parse(stream);
    const json plain = s;
    run.strategy = plain.at("strategy");
    const auto options = s.value("options", nlohmann::ordered_json::object());
    for (const auto& [key, value] : options.items()) {
      run.options.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
    }
    run.task = plain.value("task", "");
    run.model = plain.value("model", "");
    run.optimizer = plain.value("optimizer", "");
    run.date = plain.value("date", "");
    run.host = plain.value("host", "");
    run.parameters = plain.value("parameters", std::int64_t{0});
    run.workers = plain.at("workers");
    run.servers = plain.value("servers", std::int64_t{0});
    run.batch = plain.value("batch", std::int64_t{0});
    run.steps = plain.at("steps");
    run.seed = plain.value("seed", std::int64_t{0});
    run.lr = number(plain, "lr");
    run.wall_seconds = number(plain, "wall_seconds");
    run.samples_per_second = number(plain, "samples_per_second");
    run.step_ms_median = number(plain, "step_ms_median");
    run.efficiency = number(plain, "efficiency");
    run.hidden_fraction = number(plain, "hidden_fraction");
    run.bytes_sent_per_step = number(plain, "bytes_sent_per_step");
    run.bytes_received_per_step = number(plain, "bytes_received_per_step");
    run.final_loss = number(plain, "final_loss");
    for (const char* metric : {"test_accuracy", "test_loss"}) {
      if (!plain.contains(metric)) continue;
      run.metric = metric;
      run.metric_value = number(plain, metric);
    }
    run.agreement = plain.value("agreement", true);
    run.interrupted = plain.value("interrupted", false);
  } catch (const json::exception& e) {
    fail<DataError>("{} is not the summary of a run: {}", file.string(), e.what());
  }
}

std::string read_network(const fs::path& file) {
  if (!is_there(file)) return "";
  try {
    return toml::parse_file(file.string())["lab"].value_or(std::string());
  } catch (const toml::parse_error& e) {
    fail<DataError>("{}, line {}: {}", file.string(), e.source().begin.line, e.description());
  }
}

// One step, from the ledgers of all ranks.
struct StepEntry {
  double step_ms = 0, loss = 0;
  std::int64_t losses = 0, ranks = 0;
  Phases sum;
};

// Everything in all ledgers, by step.
struct Ledgers {
  std::map<std::int64_t, StepEntry> steps;
  std::map<std::int64_t, double> evaluations;
  std::map<std::int64_t, std::string> news;
  std::map<std::int64_t, GroupChange> changes;  // by group
};

void add_change(const json& record, Ledgers& all) {
  const std::int64_t group = record.at("regroup");
  GroupChange& change = all.changes[group];
  change.group = group;
  change.step = record.at("step");
  change.workers = record.at("workers");
  change.lost = record.value("lost", std::int64_t{0});
  change.joined = record.value("joined", std::int64_t{0});
  change.recovery_ms = std::max(change.recovery_ms, record.value("recovery_ms", 0.0));
  change.why = record.value("why", "");
}

void add_step(const json& record, Ledgers& all) {
  StepEntry& entry = all.steps[record.at("step")];
  const double step_ms = record.at("step_ms");
  if (entry.ranks++ == 0) entry.step_ms = step_ms;
  const double loss = number(record, "loss");
  if (std::isfinite(loss)) {
    entry.loss += loss;
    ++entry.losses;
  }
  const double update = record.at("update_ms");
  entry.sum.compute_ms += record.at("compute_ms").get<double>() - update;  // the ledger's includes the update
  entry.sum.update_ms += update;
  entry.sum.encode_ms += record.at("encode_ms").get<double>();
  entry.sum.waiting_ms += record.at("exposed_ms").get<double>();
  if (record.contains("news")) all.news.emplace(record.at("step"), record.at("news"));  // keeps the lowest rank's
}

// Reads a rank's lines; if the rank did a step twice, in two groups, the last one counts.
void read_ledger(const fs::path& file, const std::string& metric, Ledgers& all) {
  std::ifstream stream(file);
  if (!stream) fail<DataError>("cannot read {}", file.string());
  std::map<std::int64_t, json> steps;
  std::string line;
  for (std::int64_t at = 1; std::getline(stream, line); ++at) {
    try {
      const json record = json::parse(line);
      const std::int64_t step = record.at("step");
      if (record.contains("regroup")) {
        add_change(record, all);
      } else if (record.contains("step_ms")) {
        Ledgers checked;
        add_step(record, checked);
        steps[step] = record;
      } else if (!metric.empty() && record.contains(metric)) {
        all.evaluations[step] = number(record, metric.c_str());
      }
    } catch (const json::exception& e) {
      if (stream.eof()) break;  // cut off where the run was killed
      fail<DataError>("{}, line {} is not a line of a ledger: {}", file.string(), at, e.what());
    }
  }
  for (const auto& [step, record] : steps) add_step(record, all);
}

std::vector<fs::path> ledger_files(const fs::path& folder) {
  std::map<std::int64_t, fs::path> by_rank;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("ledger.rank") || !name.ends_with(".jsonl")) continue;
    by_rank[std::atoll(name.c_str() + std::string_view("ledger.rank").size())] = entry.path();
  }
  std::vector<fs::path> files;
  for (const auto& [rank, path] : by_rank) files.push_back(path);
  return files;
}

// Goes through the steps in order and adds up time and samples, with the number of workers that the changes give.
void lay_out(const Ledgers& all, std::int64_t samples_per_worker, Run& run) {
  Moment now;
  std::int64_t workers = all.steps.empty() ? 0 : all.steps.begin()->second.ranks;
  if (all.changes.empty()) workers = run.workers;
  auto change = all.changes.begin();
  const auto change_up_to = [&](std::int64_t step) {
    for (; change != all.changes.end() && change->second.step <= step; ++change) {
      GroupChange made = change->second;
      now.seconds += 1e-3 * made.recovery_ms;
      made.seconds = now.seconds;
      made.samples = now.samples;
      workers = made.workers;
      run.changes.push_back(made);
    }
  };
  const auto evaluated = [&](std::int64_t steps) {
    const auto found = all.evaluations.find(steps);
    if (found != all.evaluations.end()) run.evaluations.push_back({{steps, now.seconds, now.samples}, found->second});
  };
  std::int64_t counted = 0;
  for (const auto& [step, entry] : all.steps) {
    change_up_to(step);
    if (step != now.step) evaluated(step);  // after a gap
    now.seconds += 1e-3 * entry.step_ms;
    now.samples += static_cast<double>(workers * samples_per_worker);
    now.step = step + 1;
    const double loss = entry.losses > 0 ? entry.loss / static_cast<double>(entry.losses) : std::nan("");
    run.losses.push_back({{step, now.seconds, now.samples}, loss});
    const auto news = all.news.find(step);
    if (news != all.news.end()) run.news.push_back({{step, now.seconds, now.samples}, news->second});
    evaluated(step + 1);
    if (all.steps.size() > kSkippedSteps && step < all.steps.begin()->first + kSkippedSteps) continue;
    counted += entry.ranks;
    for (const auto phase : {&Phases::compute_ms, &Phases::update_ms, &Phases::encode_ms, &Phases::waiting_ms}) {
      run.mean.*phase += entry.sum.*phase;
    }
  }
  change_up_to(INT64_MAX);
  for (const auto phase : {&Phases::compute_ms, &Phases::update_ms, &Phases::encode_ms, &Phases::waiting_ms}) {
    if (counted > 0) run.mean.*phase /= static_cast<double>(counted);
  }
  if (!run.metric.empty() && std::isfinite(run.metric_value) && now.step > 0) {
    if (!run.evaluations.empty() && run.evaluations.back().step == now.step) run.evaluations.pop_back();
    run.evaluations.push_back({now, run.metric_value});
  }
}

}  // namespace

std::string run_name(const fs::path& folder) {
  const fs::path tidy = folder.lexically_normal();
  const std::string name = (tidy.has_filename() ? tidy.filename() : tidy.parent_path().filename()).string();
  return name.empty() || name == "." || name == ".." ? folder.string() : name;
}

Run read_run(const fs::path& folder) {
  Run run;
  run.path = folder.string();
  run.name = run_name(folder);
  read_summary(folder, run);
  run.network = read_network(folder / "config.toml");
  Ledgers all;
  for (const fs::path& file : ledger_files(folder)) read_ledger(file, run.metric, all);
  lay_out(all, run.batch, run);
  if (is_there(folder / "trace.json")) run.timeline = read_timeline(folder / "trace.json", kTimelineSteps);
  return run;
}

}  // namespace slipstream
