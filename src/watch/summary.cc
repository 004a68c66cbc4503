// SPDX-License-Identifier: Apache-2.0
#include "watch/summary.h"

#include <fmt/format.h>
#include <slipstream/base/version.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace slipstream {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void add_to(StepRecord& sum, const StepRecord& one) {
  for (const auto field :
       {&StepRecord::seconds, &StepRecord::compute_seconds, &StepRecord::update_seconds, &StepRecord::encode_seconds,
        &StepRecord::exposed_seconds, &StepRecord::wire_seconds, &StepRecord::background_wire_seconds,
        &StepRecord::background_exposed_seconds, &StepRecord::bytes_sent, &StepRecord::bytes_received}) {
    sum.*field += one.*field;
  }
}

}  // namespace

void StepStatistics::add(const StepRecord& record) {
  add_to(all_, record);
  const std::int64_t later = steps_++ - kSkippedSteps;
  if (later < 0) {
    early_.push_back(record);
    return;
  }
  add_to(later_, record);
  if (later % stride_ != 0) return;
  sample_.push_back(record);
  sample_.back().news = {};
  if (sample_.size() < kMostSampled) return;
  for (std::size_t i = 1; 2 * i < sample_.size(); ++i) sample_[i] = std::move(sample_[2 * i]);
  sample_.resize(sample_.size() / 2);
  stride_ *= 2;
}

double StepStatistics::median_ms(const Field& field) const {
  std::vector<double> values;
  for (const StepRecord& record : sample_.empty() ? early_ : sample_) values.push_back(field(record));
  return 1e3 * median(std::move(values));
}

double StepStatistics::mean(const Field& field) const {
  return steps_ == 0 ? 0 : field(all_) / static_cast<double>(steps_);
}

double StepStatistics::mean_ms(const Field& field) const {
  return steps_ == 0 ? 0 : 1e3 * field(counted()) / static_cast<double>(counted_steps());
}

double StepStatistics::hidden(const Field& exposed, const Field& wire) const {
  const double seconds = wire(counted());
  return seconds > 0 ? std::clamp(1 - exposed(counted()) / seconds, 0.0, 1.0) : 1.0;
}

double StepStatistics::efficiency() const {
  const double all = counted().seconds;
  return all > 0 ? counted().useful_seconds() / all : 1.0;
}

namespace {

// Numbers and booleans as such, everything else as text.
nlohmann::ordered_json as_json(const std::string& value) {
  auto parsed = nlohmann::ordered_json::parse(value, nullptr, false);
  if (parsed.is_number() || parsed.is_boolean()) return parsed;
  return value;
}

}  // namespace

std::string Summary::to_json() const {
  nlohmann::ordered_json j;
  const auto rounded = [](double x) -> nlohmann::ordered_json {
    if (!std::isfinite(x)) return nullptr;  // JSON has no NaN
    return std::stod(fmt::format("{:.6g}", x));
  };
  j["strategy"] = strategy;
  j["options"] = nlohmann::ordered_json::object();
  for (const auto& [key, value] : options) j["options"][key] = as_json(value);
  j["task"] = task;
  j["model"] = model;
  j["parameters"] = parameters;
  j["workers"] = workers;
  j["servers"] = servers;
  j["batch"] = batch;
  j["optimizer"] = optimizer;
  j["lr"] = rounded(lr);
  j["version"] = version();
  j["host"] = host;
  j["date"] = date;
  j["first_step"] = first_step;
  j["steps"] = steps.steps();
  j["seed"] = seed;
  j["wall_seconds"] = rounded(wall_seconds);
  j["samples_per_second"] = rounded(samples_per_second);
  j["step_ms_median"] = rounded(steps.median_ms(&StepRecord::seconds));
  j["compute_ms_median"] = rounded(steps.median_ms(&StepRecord::useful_seconds));
  j["update_ms_median"] = rounded(steps.median_ms(&StepRecord::update_seconds));
  j["encode_ms_median"] = rounded(steps.median_ms(&StepRecord::encode_seconds));
  j["exposed_ms_median"] = rounded(steps.median_ms(&StepRecord::exposed_seconds));
  j["hidden_fraction"] = rounded(steps.hidden_fraction());
  j["background_hidden_fraction"] = rounded(steps.background_hidden_fraction());
  j["efficiency"] = rounded(steps.efficiency());
  if (!compute_ms.empty()) {
    j["compute_ms_by_rank"] = nlohmann::ordered_json::array();
    for (const double ms : compute_ms) j["compute_ms_by_rank"].push_back(rounded(ms));
  }
  j["bytes_sent_per_step"] = rounded(steps.mean(&StepRecord::bytes_sent));
  j["bytes_received_per_step"] = rounded(steps.mean(&StepRecord::bytes_received));
  j["threads"] = threads;
  j["voluntary_switches_per_step"] = rounded(switches_per_step);
  j["final_loss"] = rounded(final_loss);
  j[metric] = rounded(metric_value);
  if (!recoveries.empty()) {
    j["workers_lost_times"] = recoveries.size();
    j["recovery_ms_median"] = rounded(1e3 * median(recoveries));
    j["recovery_ms_max"] = rounded(1e3 * *std::max_element(recoveries.begin(), recoveries.end()));
  }
  j["agreement"] = agreement;
  j["interrupted"] = interrupted;
  return j.dump();
}

std::string metric_text(const std::string& metric, double value) {
  return metric == "test_accuracy" ? fmt::format("test accuracy {:.2f} %", 100 * value)
                                   : fmt::format("test loss {:.4f}", value);
}

std::string Summary::advice() const {
  constexpr double kWorthIt = 0.15;  // of a step; less is noise, or not worth another accuracy
  const double step_ms = steps.mean_ms(&StepRecord::seconds);
  if (workers < 2 || !(step_ms > 0)) return "";
  const double waiting = steps.mean_ms(&StepRecord::exposed_seconds) / step_ms;
  const double encoding = steps.mean_ms(&StepRecord::encode_seconds) / step_ms;
  if (compute_ms.size() > 1 && waiting + encoding > 0) {
    const auto slowest = std::max_element(compute_ms.begin(), compute_ms.end());
    std::vector<double> others(compute_ms.begin(), slowest);
    others.insert(others.end(), slowest + 1, compute_ms.end());
    const double late_ms = *slowest - median(others);
    if (late_ms > kWorthIt * step_ms) {
      return fmt::format(
          "rank {} computes {:.0f} ms a step longer than the others; where they wait for it, no network helps",
          slowest - compute_ms.begin(), late_ms);
    }
  }
  if (waiting > kWorthIt) {
    const bool sends_all = strategy == "ssgd" || strategy == "bsp";
    return fmt::format("{:.0f} % of a step waits for the network; {}", 100 * waiting,
                       strategy == "auto" ? "--strategy auto:may=local lets it average weights now and then"
                       : sends_all        ? "try --strategy auto, or dasgd where rare averages will do"
                                          : "`slipstream explain " + strategy + "` has options that send less");
  }
  if (encoding > kWorthIt) {
    return fmt::format("{:.0f} % of a step goes into preparing what is sent; try a lower density, or --strategy ssgd",
                       100 * encoding);
  }
  return fmt::format("another strategy could save at most {:.0f} % of a step", 100 * (1 - steps.efficiency()));
}

std::string Summary::to_text() const {
  const std::string result = metric_text(metric, metric_value);
  std::string text = fmt::format(
      "{}{} steps in {:.1f} s, {:.0f} samples/s, last loss {:.4f}, {}\n"
      "a step took {:.1f} ms: computing {:.1f}, encoding {:.1f}, waiting {:.1f} ({:.0f} % computing)\n"
      "each worker sent {:.3f} MB per step; {:.0f} % of the time on the wire was hidden\n"
      "the {} workers' weights {}\n",
      interrupted ? "interrupted after " : "", steps.steps(), wall_seconds, samples_per_second, final_loss, result,
      steps.mean_ms(&StepRecord::seconds), steps.mean_ms(&StepRecord::useful_seconds),
      steps.mean_ms(&StepRecord::encode_seconds), steps.mean_ms(&StepRecord::exposed_seconds), 100 * steps.efficiency(),
      steps.mean(&StepRecord::bytes_sent) / 1e6, 100 * steps.hidden_fraction(), workers,
      agreement ? "are bit-identical" : "DIFFER: this is a bug, please report it");
  if (!recoveries.empty()) {
    text += fmt::format("workers were lost {}; the others went on after {:.2f} s (median), {:.2f} s at most\n",
                        recoveries.size() == 1 ? "once" : fmt::format("{} times", recoveries.size()),
                        median(recoveries), *std::max_element(recoveries.begin(), recoveries.end()));
  }
  if (const std::string what = advice(); !what.empty()) text += what + "\n";
  text += out.empty() ? "nothing was kept; --out DIR keeps the model, summary, ledger and trace\n"
                      : fmt::format("results are in {}\n", out);
  return text;
}

}  // namespace slipstream
