// SPDX-License-Identifier: Apache-2.0
#include "runtime/scale_bench.h"

#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

#include "base/rng.h"
#include "lab/lab.h"
#include "runtime/sim_job.h"

namespace slipstream {
namespace {

constexpr std::size_t kLayer = 4096 + 8;  // floats, of them 8 a bias: about a large network's share of small tensors
constexpr std::size_t kSamples = 128;     // of a step of all workers that train

// Gradients that cost next to nothing: layer by layer few entries are large, with a part common to all workers.
class StandIn final : public ToyTask {
 public:
  explicit StandIn(std::size_t floats) : layers_(std::max<std::size_t>(1, floats / kLayer)) {
    Rng rng(1);
    for (float& size : sizes_) size = static_cast<float>(std::exp(0.8 * rng.normal()));
  }
  std::size_t count() const { return layers_ * kLayer; }
  std::vector<Parameter> parameters() const override {
    std::vector<Parameter> all;
    for (std::size_t i = 0; i < layers_; ++i) {
      all.push_back({fmt::format("layer{}.weight", i), kLayer - 8, 64});
      all.push_back({fmt::format("layer{}.bias", i), 8});
    }
    return all;
  }
  void init(std::span<float> weights, std::uint64_t) const override { std::fill(weights.begin(), weights.end(), 1.0F); }
  double gradient(std::span<const float>, std::span<float> grads, int rank, std::int64_t t) const override {
    auto common = static_cast<std::uint32_t>(t * 104729 + 1),
         own = common + static_cast<std::uint32_t>(rank * 7919 + 7);
    const auto next = [](std::uint32_t& noise) {
      noise = noise * 1664525U + 1013904223U;
      return static_cast<float>(static_cast<std::int32_t>(noise)) * 0x1p-38F;
    };
    for (std::size_t i = 0; i < grads.size(); ++i) {
      const float shared = next(common);
      grads[i] = sizes_[(i + i / kLayer * 769) % kLayer] * (shared + next(own));
    }
    return 0;
  }

 private:
  std::size_t layers_;
  std::array<float, kLayer> sizes_;  // of a layer's entries
};

MlpOptions classifier(int workers, std::uint64_t seed) {
  return {.inputs = 256,
          .hidden = 192,
          .classes = 64,
          .batch = std::max<std::size_t>(1, kSamples / static_cast<std::size_t>(workers)),
          .seed = seed,
          .spread = 4};
}

void check_options(const ScaleBenchOptions& o) {
  if (!(o.parameters >= 1 && o.parameters <= 1e12)) fail<ConfigError>("--parameters goes from 1 to 1e12");
  if (!(o.compute_ms > 0 && o.compute_ms <= 1e7)) fail<ConfigError>("--compute-ms goes from above 0 to 1e7");
  if (o.max_workers < 1 || o.max_workers > 1024) fail<ConfigError>("--max-workers goes from 1 to 1024");
  if (o.min_workers < 1 || o.min_workers > o.max_workers) {
    fail<ConfigError>("--min-workers goes from 1 to --max-workers, {}", o.max_workers);
  }
  if (o.steps < 2 || o.steps > 100'000) fail<ConfigError>("--steps goes from 2 to 100000");
  if (o.stand_in < 1 || o.stand_in > 100'000'000) fail<ConfigError>("--stand-in goes from 1 to 1e8 floats");
  if (o.seeds < 1 || o.seeds > 100) fail<ConfigError>("--seeds goes from 1 to 100");
  if (o.seeds > 1 && !o.train) fail<ConfigError>("--seeds is for --train: without it a run is the same every time");
  const LabSpec link = LabSpec::parse(o.link);
  if (link.rate == "none") fail<ConfigError>("--link needs a rate: 100mbit, or with a latency 1gbit,20ms");
  if (link.loss_percent > 0) fail<ConfigError>("--link {}: simulated links lose nothing; leave out the loss", o.link);
}

StrategyInfo::Configured configure(const std::string& text, const ScaleBenchOptions& options,
                                   const Registry& registry) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  std::vector<std::string> set = options.set;
  for (std::size_t at = colon + 1; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    set.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return registry.configure(text.substr(0, colon), set);
}

SimJobResult simulate(const ScaleBenchOptions& options, const StrategyInfo::Configured& strategy, int workers,
                      std::uint64_t seed, double& bytes_scale) {
  const LabSpec link = LabSpec::parse(options.link);
  SimJobOptions job;
  job.world.ranks = workers;
  job.world.link.bytes_per_s = link.bits_per_second() / 8;
  job.world.link.latency_s += link.delay_ms / 1000;  // on top of what the machines take themselves
  job.world.timeout_s = 1e9;
  if (options.train) {
    job.task = std::make_shared<MlpTask>(classifier(workers, seed));
  } else {
    job.task = std::make_shared<StandIn>(static_cast<std::size_t>(options.stand_in));
  }
  bytes_scale = job.world.bytes_scale =
      options.parameters / static_cast<double>(FlatModel(job.task->parameters()).count());
  job.make_strategy = strategy.make;
  job.optimizer.kind = options.optimizer;
  job.optimizer.lr = options.lr;
  job.seed = seed;
  job.compute_seconds = options.compute_ms / 1000;
  job.steps = options.steps;
  SimJobResult result = run_sim_job(job);
  check(result.agreement(), "{} workers ended with different weights", workers);
  return result;
}

// Means over workers and over the second half of the steps: what adapts has adapted.
ScaleRow row_of(const SimJobResult& result, double compute_ms, double bytes_scale) {
  ScaleRow row{.workers = static_cast<int>(result.ranks.size())};
  double wire_ms = 0;
  for (const SimRankResult& rank : result.ranks) {
    const std::size_t first = rank.steps.size() / 2;
    const double count = static_cast<double>(rank.steps.size() - first), all = count * row.workers;
    double sent = 0, received = 0;
    for (std::size_t i = first; i < rank.steps.size(); ++i) {
      row.step_ms += 1000 * rank.steps[i].seconds / all;
      row.exposed_ms += 1000 * rank.steps[i].exposed_seconds / all;
      wire_ms += 1000 * rank.steps[i].wire_seconds / all;
      sent += rank.steps[i].bytes_sent * bytes_scale / 1e6;
      received += rank.steps[i].bytes_received * bytes_scale / 1e6;
    }
    row.mb_sent += sent / all;
    row.mb_busiest = std::max({row.mb_busiest, sent / count, received / count});
  }
  for (const SimStepRecord& step : result.ranks[0].steps) {
    if (!step.news.empty()) row.news = step.news;
  }
  row.linear = compute_ms / row.step_ms;
  row.hidden = wire_ms > 0 ? std::max(0.0, 1 - row.exposed_ms / wire_ms) : 1;
  return row;
}

double last_loss(const SimJobResult& result) {
  double sum = 0, count = 0;
  for (const SimRankResult& rank : result.ranks) {
    for (std::size_t i = rank.steps.size() - (rank.steps.size() + 3) / 4; i < rank.steps.size(); ++i) {
      sum += rank.steps[i].loss;
      ++count;
    }
  }
  return sum / count;
}

ScaleRow measure(const ScaleBenchOptions& options, const StrategyInfo::Configured& strategy, int workers) {
  ScaleRow row;
  std::vector<double> losses;
  for (std::int64_t seed = 1; seed <= options.seeds; ++seed) {
    double bytes_scale = 1;
    const SimJobResult result = simulate(options, strategy, workers, static_cast<std::uint64_t>(seed), bytes_scale);
    if (seed == 1) row = row_of(result, options.compute_ms, bytes_scale);
    losses.push_back(last_loss(result));
    row.loss += losses.back() / static_cast<double>(options.seeds);
  }
  const auto [best, worst] = std::minmax_element(losses.begin(), losses.end());
  row.loss_spread = (*worst - *best) / 2;
  return row;
}

}  // namespace

std::vector<ScaleRow> measure_scale(const ScaleBenchOptions& options, const Registry& registry) {
  check_options(options);
  std::vector<ScaleRow> rows;
  for (auto workers = std::bit_ceil(static_cast<unsigned>(options.min_workers)); workers <= options.max_workers;
       workers *= 2) {
    for (const std::string& text : options.strategies) {
      rows.push_back(measure(options, configure(text, options, registry), static_cast<int>(workers)));
      rows.back().strategy = text;
    }
  }
  return rows;
}

int run_scale_bench(const ScaleBenchOptions& options, const Registry& registry) {
  const auto rows = measure_scale(options, registry);
  std::printf("%s, simulated: %.4g parameters, %.4g ms of computing a step, %s\n\n",
              fmt::format("{} {}", fmt::join(options.strategies, " "), fmt::join(options.set, " ")).c_str(),
              options.parameters, options.compute_ms, options.link.c_str());
  std::printf("| %-24s | %7s | %9s | %10s | %11s | %6s | %9s | %9s |%s\n|---|---:|---:|---:|---:|---:|---:|---:|%s\n",
              "strategy", "workers", "step ms", "exposed ms", "% of linear", "hidden", "MB sent", "busiest",
              options.train ? "    loss |     ± |" : "", options.train ? "---:|---:|" : "");
  for (const ScaleRow& row : rows) {
    std::printf("| %-24s | %7d | %9.1f | %10.1f | %11.1f | %6.3f | %9.3f | %9.3f |", row.strategy.c_str(), row.workers,
                row.step_ms, row.exposed_ms, 100 * row.linear, row.hidden, row.mb_sent, row.mb_busiest);
    if (options.train) std::printf(" %7.4f | %.3f |", row.loss, row.loss_spread);
    std::printf("\n");
  }
  return 0;
}

}  // namespace slipstream
