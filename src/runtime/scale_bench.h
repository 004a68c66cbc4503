// SPDX-License-Identifier: Apache-2.0
//
// The scale benchmark: how the throughput of a strategy grows with the workers, at a fixed batch per worker, on a
// network one describes. It runs the strategy's own code in a SimWorld: bytes, order and waits are real, time is not.
//
// The model is a stand-in of a few thousand floats whose bytes count as those of the model asked for, so it has one
// bucket whatever the strategy's rule: what overlaps backward bucket by bucket (ssgd) is shown without that.
// Computing takes the time it is told; encoding takes none.
#pragma once

#include <slipstream/strategy/registry.h>

#include <cstdint>
#include <string>
#include <vector>

namespace slipstream {

struct ScaleBenchOptions {
  std::string strategy = "dasgd";
  std::vector<std::string> set{};  // "key=value"
  std::string link = "1gbit";      // as for a lab
  double parameters = 1.66e6;
  double compute_ms = 105;
  std::int64_t max_workers = 256;
  std::int64_t steps = 128;
};

struct ScaleRow {
  int workers = 1;
  double step_ms = 0;
  double linear = 1;   // throughput as a share of workers × one worker's
  double hidden = 1;   // share of the time on the wire during which nobody waited
  double mb_sent = 0;  // by one worker in one step
};

// One row for 1, 2, 4, … workers. Throws ConfigError for options that make no sense.
std::vector<ScaleRow> measure_scale(const ScaleBenchOptions& options, const Registry& registry);

// Prints them.
int run_scale_bench(const ScaleBenchOptions& options, const Registry& registry);

}  // namespace slipstream
