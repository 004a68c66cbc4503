// SPDX-License-Identifier: Apache-2.0
//
// What strategies learn with more workers than there are machines: their own code trains a small classifier in simulated
// time. For each number of workers it prints the loss on samples never seen before, mean over the last quarter of the
// steps and over the seeds, and what a worker sends, divided by what a dense sum sends.
//
//   ./run bench learning --workers 4 16 --strategies topk gtopk gs:density=0.01
//
// The classifier has 61,696 parameters; its clusters overlap. This says nothing about time (slipstream plan does) and
// little about other models.
#include <fmt/format.h>
#include <slipstream/base/error.h>
#include <slipstream/strategy/registry.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "sim/sim_job.h"
#include "strategy/contender.h"

namespace slipstream {
namespace {

struct Arguments {
  std::vector<std::string> strategies{"ssgd", "topk", "gtopk", "gs"};
  std::vector<int> workers{4, 8, 16};
  std::string optimizer = "sgd";
  double lr = 0;  // 0: the optimizer's default
  std::int64_t steps = 120, seeds = 2, samples = 128;
};

const Registry& strategies() {
  static const Registry all = Registry::builtin();
  return all;
}

struct Learnt {
  double loss = 0, sent = 0, busiest = 0;  // sent: bytes of a step, mean over the workers
};

Learnt train(const Arguments& a, const Contender& contender, int workers, std::uint64_t seed) {
  const MlpOptions mlp{.inputs = 256,
                       .hidden = 192,
                       .classes = 64,
                       .batch = static_cast<std::size_t>(a.samples / workers),
                       .seed = seed,
                       .spread = 4};
  SimJobOptions job;
  job.world.ranks = workers;
  job.task = std::make_shared<MlpTask>(mlp);
  const auto configured = strategies().configure(contender.name, contender.set);
  job.make_strategy = [configured] { return configured.make(); };
  job.optimizer.kind = a.optimizer;
  job.optimizer.lr = a.lr;
  job.steps = a.steps;
  job.seed = seed;
  const SimJobResult result = run_sim_job(job);
  check(result.all_finished(), "{} did not finish: {}", contender.text(), result.ranks[0].outcome.error);
  Learnt learnt;
  const auto all = static_cast<double>(a.steps), ranks = static_cast<double>(workers);
  const std::int64_t late = a.steps - std::max<std::int64_t>(1, a.steps / 4);
  for (const SimRankResult& rank : result.ranks) {
    double sent = 0, received = 0;
    for (std::int64_t t = 0; t < a.steps; ++t) {
      const SimStepRecord& step = rank.steps[static_cast<std::size_t>(t)];
      sent += step.bytes_sent / all;
      received += step.bytes_received / all;
      if (t >= late) learnt.loss += step.loss / (ranks * static_cast<double>(a.steps - late));
    }
    learnt.sent += sent / ranks;
    learnt.busiest = std::max({learnt.busiest, sent, received});
  }
  return learnt;
}

Learnt mean_over_seeds(const Arguments& a, const Contender& contender, int workers) {
  Learnt mean;
  const auto share = 1 / static_cast<double>(a.seeds);
  for (std::int64_t seed = 1; seed <= a.seeds; ++seed) {
    const Learnt one = train(a, contender, workers, static_cast<std::uint64_t>(seed));
    mean.loss += one.loss * share;
    mean.sent += one.sent * share;
    mean.busiest += one.busiest * share;
  }
  return mean;
}

int run(const Arguments& a) {
  for (const int workers : a.workers) {
    if (workers < 1 || a.samples % workers != 0) {
      fail<ConfigError>("{} samples of a step cannot be shared by {} workers equally; change --samples", a.samples,
                        workers);
    }
  }
  std::vector<Contender> contenders;
  for (const std::string& text : a.strategies) {
    contenders.push_back(Contender::parse(text));
    strategies().configure(contenders.back().name, contenders.back().set);  // bad options are refused at once
  }
  std::string head = "| loss (sent, busiest port ÷ dense) |", rule = "|---|";
  for (const int workers : a.workers) {
    head += fmt::format(" P = {} |", workers);
    rule += "---:|";
  }
  std::printf("%s\n%s\n", head.c_str(), rule.c_str());
  std::vector<double> dense;
  for (const int workers : a.workers) dense.push_back(mean_over_seeds(a, {"ssgd", {}}, workers).sent);
  for (const Contender& contender : contenders) {
    std::printf("| %s |", contender.text().c_str());
    for (std::size_t i = 0; i < a.workers.size(); ++i) {
      const Learnt learnt = mean_over_seeds(a, contender, a.workers[i]);
      std::printf(" %.3f (%.3f, %.3f) |", learnt.loss, learnt.sent / dense[i], learnt.busiest / dense[i]);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) {
  slipstream::Arguments a;
  CLI::App app("what strategies learn, simulated, with many workers");
  app.add_option("--strategies", a.strategies, "NAME or NAME:KEY=VALUE,…")->capture_default_str();
  app.add_option("--workers", a.workers, "a column for each")->capture_default_str();
  app.add_option("--optimizer", a.optimizer, "sgd has a momentum of 0.9")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}))
      ->capture_default_str();
  app.add_option("--lr", a.lr, "0: 0.05 for sgd, 0.001 for the others")->capture_default_str();
  app.add_option("--steps", a.steps)->check(CLI::Range(4, 1'000'000))->capture_default_str();
  app.add_option("--seeds", a.seeds, "the mean is over seeds 1, 2, …")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--samples", a.samples, "of a step, all workers together")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return slipstream::run(a);
  } catch (const slipstream::ConfigError& e) {
    std::fprintf(stderr, "slipstream: %s\n", e.what());
    return 2;
  }
}
