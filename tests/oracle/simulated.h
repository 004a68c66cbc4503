// SPDX-License-Identifier: Apache-2.0
//
// The other side of an oracle's comparison: its problem, trained by the library's strategies in a SimWorld.
#pragma once

#include <slipstream/strategy/registry.h>

#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "oracle/oracle.h"
#include "sim/sim_job.h"

namespace slipstream::oracle {

// The problem as a task: in layers, an empty one and a single element among them.
class ProblemTask final : public ToyTask {
 public:
  explicit ProblemTask(const Problem& problem) : problem_(problem) {}

  std::vector<Parameter> parameters() const override {
    const std::size_t last = problem_.size - 5;
    return {{"first", 4}, {"one", 1}, {"none", 0}, {"last", last, last % 5 == 0 ? 5UL : 1UL}};
  }
  void init(std::span<float> weights, std::uint64_t) const override {
    const Vec start = problem_.start();
    std::transform(start.begin(), start.end(), weights.begin(), [](double x) { return static_cast<float>(x); });
  }
  double gradient(std::span<const float> weights, std::span<float> grads, int rank, std::int64_t t) const override {
    const Vec g = problem_.gradient(Vec(weights.begin(), weights.end()), rank, t);
    std::transform(g.begin(), g.end(), grads.begin(), [](double x) { return static_cast<float>(x); });
    return 0;  // nobody asks for the loss
  }

 private:
  Problem problem_;
};

inline OptimizerOptions optimizer_of(const Rule& rule) {
  return {.kind = rule.kind,
          .lr = rule.lr,
          .momentum = rule.momentum,
          .nesterov = rule.nesterov,
          .weight_decay = rule.weight_decay,
          .eps = rule.eps,
          .clip_norm = rule.clip_norm};
}

// What `strategy` with the options `set` does with the problem. The run's numbers are floats, held without loss.
inline Course simulate(const Problem& problem, const Rule& rule, int workers, std::int64_t steps,
                       const std::string& strategy, const std::vector<std::string>& set = {}, int servers = 0) {
  const auto count = static_cast<std::size_t>(workers);
  Course run;
  run.steps.assign(static_cast<std::size_t>(steps), Ranks(count));
  SimJobOptions job;
  job.world.ranks = workers;
  job.task = std::make_shared<ProblemTask>(problem);
  job.make_strategy = Registry::builtin().configure(strategy, set).make;
  job.servers = servers;
  job.optimizer = optimizer_of(rule);
  job.lr = [rule](std::int64_t t) { return rule.lr_at(t); };
  job.steps = steps;
  job.on_step_end = [&run](int rank, std::int64_t t, std::span<const float> weights) {
    run.steps[static_cast<std::size_t>(t)][static_cast<std::size_t>(rank)].assign(weights.begin(), weights.end());
  };
  for (const SimRankResult& rank : run_sim_job(job).ranks)
    run.end.emplace_back(rank.weights.begin(), rank.weights.end());
  return run;
}

// Of a strategy with error feedback: where it stands, where plain SGD on the gradients it saw would stand (in the long
// run, with momentum: at a rate of lr / (1 - m)), and what its workers owe, as weights. Nothing is lost where
// reached - owed = plain.
struct Books {
  Vec reached, plain, owed;
  std::vector<std::string> news;  // that rank 0 told

  double imbalance() const {  // the largest, of any element
    double largest = 0;
    for (std::size_t j = 0; j < plain.size(); ++j)
      largest = std::max(largest, std::abs(reached[j] - owed[j] - plain[j]));
    return largest;
  }
  double at_stake() const { return std::sqrt(std::inner_product(owed.begin(), owed.end(), owed.begin(), 0.0)); }
};

// `owed_in_weights`: the strategy's residual is in units of weights, not of gradients.
inline Books keep_books(const Problem& problem, const Rule& rule, int workers, std::int64_t steps,
                        const std::string& strategy, const std::vector<std::string>& set,
                        bool owed_in_weights = false) {
  Ranks weights{problem.start()};  // of rank 0, before every step and at the end
  SimJobOptions job;
  job.world.ranks = workers;
  job.task = std::make_shared<ProblemTask>(problem);
  job.make_strategy = Registry::builtin().configure(strategy, set).make;
  job.optimizer = optimizer_of(rule);
  job.lr = [rule](std::int64_t t) { return rule.lr_at(t); };
  job.steps = steps + 1;
  job.stop_after = steps;
  job.on_step_end = [&](int rank, std::int64_t, std::span<const float> w) {
    if (rank == 0) weights.emplace_back(w.begin(), w.end());
  };
  const SimJobResult result = run_sim_job(job);
  Books books{weights.back(), problem.start(), Vec(problem.size), {}};
  for (const SimStepRecord& step : result.ranks[0].steps) {
    if (!step.news.empty()) books.news.push_back(step.news);
  }
  for (std::int64_t t = 0; t < steps; ++t) {
    for (int p = 0; p < workers; ++p) {
      const Vec g = problem.gradient(weights[static_cast<std::size_t>(t)], p, t);
      for (std::size_t j = 0; j < problem.size; ++j) {
        books.plain[j] -= rule.lr_at(t) / (1 - rule.momentum) * g[j] / workers;
      }
    }
  }
  for (const StateArchive& state : result.saved.value().ranks) {
    const auto& residual = std::get<std::vector<float>>(state.entries().at("strategy/residual"));
    const double unit = owed_in_weights ? 1 : rule.lr_at(steps);
    for (std::size_t j = 0; j < problem.size; ++j) books.owed[j] += unit * residual[j] / workers;
  }
  return books;
}

// The largest difference between two runs, at any step, rank and element; infinity where their shapes differ.
inline double distance(const Ranks& a, const Ranks& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double largest = a.size() == b.size() ? 0 : kInfinity;
  for (std::size_t p = 0; p < std::min(a.size(), b.size()); ++p) {
    if (a[p].size() != b[p].size()) return kInfinity;
    for (std::size_t j = 0; j < a[p].size(); ++j) {
      const double difference = std::abs(a[p][j] - b[p][j]);
      largest = difference <= largest ? largest : difference;  // a NaN stays
    }
  }
  return largest;
}

inline double distance(const Course& a, const Course& b) {
  double largest = a.steps.size() == b.steps.size() ? distance(a.end, b.end) : std::numeric_limits<double>::infinity();
  for (std::size_t t = 0; t < std::min(a.steps.size(), b.steps.size()); ++t) {
    const double difference = distance(a.steps[t], b.steps[t]);
    largest = difference <= largest ? largest : difference;
  }
  return largest;
}

// Weights are of the order of 1, single precision rounds them to 6e-8, and the problem forgets errors within some tens
// of steps. A wrong rule is further off than a hundred times this (OraclesTellRulesApart).
inline constexpr double kRounding = 5e-6;

// The rules the strategies are tried with.
inline const std::vector<std::pair<const char*, Rule>>& rules() {
  static const std::vector<std::pair<const char*, Rule>> all = {
      {"plain", {}},
      {"momentum", {.momentum = 0.9}},
      {"Nesterov", {.momentum = 0.9, .nesterov = true}},
      {"weight decay", {.momentum = 0.9, .weight_decay = 0.01}},
      {"falling rate", {.lr_decay = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}},
      {"clipped", {.momentum = 0.9, .clip_norm = 0.8}},
  };
  return all;
}

// Those that strategies with a memory of directions are tried with. Adam's first directions would all be as long with
// its usual eps, and rounding would decide which are the largest.
inline std::vector<std::pair<const char*, Rule>> direction_rules() {
  auto all = rules();
  all.push_back({"AdamW", {.lr = 0.01, .weight_decay = 0.1, .kind = "adamw", .eps = 0.1}});
  all.push_back({"AdamW, falling rate, clipped",
                 {.lr = 0.01, .lr_decay = 0.1, .weight_decay = 0.1, .clip_norm = 0.8, .kind = "adamw", .eps = 0.1}});
  return all;
}

// Those under which a memory in units of weights that sends everything is momentum itself: the rate is constant, decay
// does not pass through the momentum, and nobody clips.
inline std::vector<std::pair<const char*, Rule>> lasting_rules() {
  auto all = rules();
  std::erase_if(all, [](const auto& rule) {
    return rule.second.clip_norm > 0 || rule.second.lr_decay > 0 || rule.second.weight_decay > 0;
  });
  return all;
}

// Those that servers take: none of them sees the whole gradient to clip it.
inline std::vector<std::pair<const char*, Rule>> server_rules() {
  auto all = rules();
  std::erase_if(all, [](const auto& rule) { return rule.second.clip_norm > 0; });
  return all;
}

}  // namespace slipstream::oracle
