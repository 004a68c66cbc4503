// SPDX-License-Identifier: Apache-2.0
#include "compare/peer.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace slipstream {
namespace {

using nlohmann::json;

constexpr std::pair<std::string_view, std::string_view> kHooks[] = {
    {"ddp", "none"}, {"fp16", "fp16"}, {"powersgd1", "powersgd1"}, {"powersgd4", "powersgd4"}};

constexpr std::string_view kPeriodic[] = {"torchft-local", "torchft-diloco", "hivemind"};

struct Peer {
  std::string hook, number;  // empty hook: unknown peer; empty number: the script's default
  bool periodic = false;     // the number is a period; otherwise the size of DDP's buckets
};

Peer parse(const std::string& text) {
  const std::size_t at = text.find('@');
  const std::string name = text.substr(0, at);
  Peer peer{"", at == std::string::npos ? "" : text.substr(at + 1)};
  for (const auto& [known, hook] : kHooks) {
    if (name == known) peer.hook = hook;
  }
  for (const std::string_view ours : {"hook-", "python-"}) {
    if (name.starts_with(ours) && name.size() > ours.size()) peer.hook = name;
  }
  peer.periodic = std::ranges::find(kPeriodic, name) != std::end(kPeriodic);
  if (peer.periodic) peer.hook = name;
  const bool digits = !peer.number.empty() && peer.number.size() < 7 && peer.number.front() != '0' &&
                      std::all_of(peer.number.begin(), peer.number.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (at != std::string::npos && !digits) peer.hook.clear();
  return peer;
}

double number(const json& from, const char* key) {
  const auto found = from.find(key);
  return found == from.end() || !found->is_number() ? std::nan("") : found->get<double>();
}

// [step, seconds, value]
template <typename Point, typename Value>
std::vector<Point> points(const json& list, double samples_per_step, Value Point::*value) {
  std::vector<Point> made;
  for (const json& entry : list) {
    Point point;
    point.step = entry.at(0);
    point.seconds = entry.at(1);
    point.samples = samples_per_step * static_cast<double>(point.step);
    point.*value = entry.at(2).is_number() ? entry.at(2).get<double>() : std::nan("");
    made.push_back(point);
  }
  return made;
}

}  // namespace

void check_peer(const std::string& peer) {
  if (!parse(peer).hook.empty()) return;
  fail<ConfigError>(
      "there is no peer {}; use ddp, fp16, powersgd1, powersgd4, hook-STRATEGY or python-STRATEGY, each perhaps with "
      "the size of DDP's buckets: ddp@1000; or torchft-local, torchft-diloco or hivemind, perhaps with their period: "
      "hivemind@8",
      peer);
}

std::vector<std::string> peer_flags(const std::string& text) {
  check_peer(text);
  const Peer peer = parse(text);
  std::vector<std::string> flags{"--hook", peer.hook};
  if (!peer.number.empty()) flags.insert(flags.end(), {peer.periodic ? "--period" : "--bucket-mb", peer.number});
  return flags;
}

Run peer_run(const std::string& printed, const std::string& peer, const std::string& link) {
  const std::size_t open = printed.rfind("{\"peer\"");
  const auto told = open == std::string::npos
                        ? json()
                        : json::parse(printed.substr(open, printed.find('\n', open) - open), nullptr, false);
  if (!told.is_object()) fail<DataError>("it printed no line of results");
  try {
    Run run;
    run.strategy = run.name = peer;
    run.network = link;
    run.task = told.at("task");
    run.model = told.at("model");
    run.parameters = told.at("parameters");
    run.workers = told.at("workers");
    run.batch = told.at("batch");
    run.steps = told.at("steps");
    run.seed = told.at("seed");
    run.options = {{"torch", told.at("torch").get<std::string>()}};
    run.step_ms_median = told.at("step_ms_median");
    run.samples_per_second = told.at("samples_per_second");
    run.wall_seconds = number(told, "wall_seconds");
    run.efficiency = number(told, "compute_ms_median") / run.step_ms_median;
    run.hidden_fraction = run.bytes_sent_per_step = run.bytes_received_per_step = std::nan("");
    run.final_loss = number(told, "final_loss");
    run.metric = told.contains("test_loss") ? "test_loss" : "test_accuracy";
    run.metric_value = number(told, run.metric.c_str());
    const double samples_per_step = static_cast<double>(run.batch * run.workers);
    run.losses = points<LossPoint>(told.at("losses"), samples_per_step, &LossPoint::loss);
    run.evaluations = points<EvaluationPoint>(told.at("evaluations"), samples_per_step, &EvaluationPoint::value);
    return run;
  } catch (const json::exception& e) {
    fail<DataError>("its line of results lacks something: {}", e.what());
  }
}

}  // namespace slipstream
