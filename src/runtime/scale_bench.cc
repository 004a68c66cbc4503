// SPDX-License-Identifier: Apache-2.0
#include "runtime/scale_bench.h"

#include <slipstream/base/error.h>

#include <cmath>
#include <cstdio>

#include "lab/lab.h"
#include "runtime/sim_job.h"

namespace slipstream {
namespace {

constexpr std::size_t kStandIn = 4096;  // floats

// Gradients that cost next to nothing and differ between ranks and steps: selections have something to choose from.
class StandIn final : public ToyTask {
 public:
  std::vector<Parameter> parameters() const override { return {{"all", kStandIn}}; }
  void init(std::span<float> weights, std::uint64_t) const override { std::fill(weights.begin(), weights.end(), 1.0F); }
  double gradient(std::span<const float> weights, std::span<float> grads, int rank, std::int64_t t) const override {
    auto noise = static_cast<std::uint32_t>(rank * 7919 + t * 104729 + 1);
    for (std::size_t i = 0; i < grads.size(); ++i) {
      noise = noise * 1664525U + 1013904223U;
      grads[i] = 0.1F * weights[i] + static_cast<float>(static_cast<std::int32_t>(noise)) * 0x1p-40F;
    }
    return 0;
  }
};

void check_options(const ScaleBenchOptions& o) {
  if (!(o.parameters >= 1 && o.parameters <= 1e12)) fail<ConfigError>("--parameters goes from 1 to 1e12");
  if (!(o.compute_ms > 0 && o.compute_ms <= 1e7)) fail<ConfigError>("--compute-ms goes from above 0 to 1e7");
  if (o.max_workers < 1 || o.max_workers > 1024) fail<ConfigError>("--max-workers goes from 1 to 1024");
  if (o.steps < 2 || o.steps > 100'000) fail<ConfigError>("--steps goes from 2 to 100000");
  const LabSpec link = LabSpec::parse(o.link);
  if (link.rate == "none") fail<ConfigError>("--link needs a rate: 100mbit, or with a latency 1gbit,20ms");
  if (link.loss_percent > 0) fail<ConfigError>("--link {}: simulated links lose nothing; leave out the loss", o.link);
}

ScaleRow measure(const ScaleBenchOptions& options, const StrategyInfo::Configured& strategy, int workers) {
  const LabSpec link = LabSpec::parse(options.link);
  SimJobOptions job;
  job.world.ranks = workers;
  job.world.link.bytes_per_s = link.bits_per_second() / 8;
  job.world.link.latency_s += link.delay_ms / 1000;  // on top of what the machines take themselves
  job.world.bytes_scale = options.parameters / static_cast<double>(kStandIn);
  job.world.timeout_s = 1e9;
  job.task = std::make_shared<StandIn>();
  job.make_strategy = strategy.make;
  job.compute_seconds = options.compute_ms / 1000;
  job.steps = options.steps;
  const SimJobResult result = run_sim_job(job);
  check(result.agreement(), "{} workers ended with different weights", workers);

  const auto& steps = result.ranks[0].steps;
  const std::size_t first = steps.size() / 2;  // what adapts has adapted
  const auto count = static_cast<double>(steps.size() - first);
  double seconds = 0, wire = 0, exposed = 0, bytes = 0;
  for (std::size_t i = first; i < steps.size(); ++i) {
    seconds += steps[i].seconds;
    wire += steps[i].wire_seconds;
    exposed += steps[i].exposed_seconds;
    bytes += steps[i].bytes_sent;
  }
  return {.workers = workers,
          .step_ms = 1000 * seconds / count,
          .linear = job.compute_seconds * count / seconds,
          .hidden = wire > 0 ? std::max(0.0, 1 - exposed / wire) : 1,
          .mb_sent = bytes * job.world.bytes_scale / count / 1e6};
}

}  // namespace

std::vector<ScaleRow> measure_scale(const ScaleBenchOptions& options, const Registry& registry) {
  check_options(options);
  const auto strategy = registry.configure(options.strategy, options.set);
  std::vector<ScaleRow> rows;
  for (int workers = 1; workers <= options.max_workers; workers *= 2) {
    rows.push_back(measure(options, strategy, workers));
  }
  return rows;
}

int run_scale_bench(const ScaleBenchOptions& options, const Registry& registry) {
  const auto rows = measure_scale(options, registry);
  std::printf("%s%s%s, simulated: %.4g parameters, %.4g ms of computing a step, %s\n\n", options.strategy.c_str(),
              options.set.empty() ? "" : " ", fmt::format("{}", fmt::join(options.set, " ")).c_str(),
              options.parameters, options.compute_ms, options.link.c_str());
  std::printf("| %7s | %10s | %11s | %8s | %15s |\n|---:|---:|---:|---:|---:|\n", "workers", "step ms", "% of linear",
              "hidden", "MB sent a step");
  for (const ScaleRow& row : rows) {
    std::printf("| %7d | %10.1f | %11.1f | %8.3f | %15.3f |\n", row.workers, row.step_ms, 100 * row.linear, row.hidden,
                row.mb_sent);
  }
  return 0;
}

}  // namespace slipstream
