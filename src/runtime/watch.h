// SPDX-License-Identifier: Apache-2.0
//
// Watch: what people look at while a worker trains, if they asked for it: the dashboard and TensorBoard's event files.
// Rank 0 provides both; since every worker of an elastic job may become rank 0, each keeps what a dashboard shows.
// Training thread only.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "runtime/config.h"
#include "watch/dashboard.h"
#include "watch/event_file.h"
#include "watch/ledger.h"
#include "watch/live_run.h"

namespace slipstream {

class Watch {
 public:
  // `about`: what is known about the run before its first step. The configuration must outlive this object.
  Watch(const TrainConfig& config, const Summary& about);

  // For rank 0: serves the dashboard from now on, and prints its address. ConfigError where the port is in use.
  void serve();

  // `samples`: of all workers together. `resolved` is called when an event file begins.
  void step(const StepRecord& record, const Traffic& traffic, double samples, bool rank_0,
            const std::function<std::string()>& resolved);
  void evaluated(std::int64_t steps, const std::string& metric, double value, bool rank_0);
  void regrouped(const Ledger::Change& change);

 private:
  void write_events(const StepRecord& record, const std::function<std::string()>& resolved);

  const TrainConfig& config_;
  std::optional<EventFile> events_;
  std::optional<LiveRun> live_;
  std::optional<Dashboard> dashboard_;  // last: its thread asks live_
};

}  // namespace slipstream
