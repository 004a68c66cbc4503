// SPDX-License-Identifier: Apache-2.0
//
// The scale benchmark: how the throughput of strategies grows with the workers, at a fixed batch per worker, on a
// network one describes. It runs the strategies' own code in a SimWorld: bytes, order and waits are real, time is not.
//
// The model is a stand-in of `stand_in` floats, whose bytes count, on the wire and in buckets, as those of the model
// asked for: equal layers with a bias each, and gradients of which few entries are large, partly the same ones on all
// workers. With `train` it is a small classifier instead, which learns: the same samples in a step with any number of
// workers, and a loss to compare strategies by. Computing takes the time it is told; encoding takes none.
#pragma once

#include <slipstream/strategy/registry.h>

#include <cstdint>
#include <string>
#include <vector>

namespace slipstream {

struct ScaleBenchOptions {
  std::vector<std::string> strategies{"dasgd"};  // NAME or NAME:KEY=VALUE,…
  std::vector<std::string> set{};                // "key=value", of all of them
  std::string link = "1gbit";                    // as for a lab
  double parameters = 1.66e6;
  double compute_ms = 105;
  std::int64_t min_workers = 1, max_workers = 256;
  std::int64_t steps = 128;
  std::int64_t stand_in = 16384;

  bool train = false;
  std::string optimizer = "sgd";
  double lr = 0;           // 0: the optimizer's default
  std::int64_t seeds = 1;  // trained so often; times are the first one's, losses the means
};

struct ScaleRow {
  std::string strategy;
  int workers = 1;
  double step_ms = 0, exposed_ms = 0;
  double linear = 1;       // throughput as a share of workers × one worker's
  double hidden = 1;       // share of the time on the wire during which nobody waited
  double mb_sent = 0;      // by a worker in a step, the mean over them
  double mb_busiest = 0;   // in a step through the busiest port, the direction that carries more
  double loss = 0;         // train: the mean over the last quarter of the steps …
  double loss_spread = 0;  // … and half the distance between the best and the worst seed's
  std::string news{};      // the last that the strategy told
};

// For 1, 2, 4, … workers a row for every strategy. Throws ConfigError for options that make no sense.
std::vector<ScaleRow> measure_scale(const ScaleBenchOptions& options, const Registry& registry);

// Prints them.
int run_scale_bench(const ScaleBenchOptions& options, const Registry& registry);

}  // namespace slipstream
