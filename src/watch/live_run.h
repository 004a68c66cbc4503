// SPDX-License-Identifier: Apache-2.0
//
// LiveRun: a run in progress, as rank 0 sees it, for its dashboard. The training thread adds what happens; any other
// thread asks for the state of the run. Memory is bounded whatever the length of the run: old losses and evaluations
// are thinned out, and only the latest news, changes and traced steps are kept.
//
// One mutex guards everything. The training thread holds it for a few additions per step; a thread that asks holds it
// while it copies what is kept, and makes text of it afterwards. Steps are traced only while somebody looks. Losses and
// times are this rank's alone: asking the others would slow down training.
#pragma once

#include <slipstream/base/clock.h>
#include <slipstream/engine/step_record.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fabric/metered_fabric.h"
#include "report/run.h"
#include "watch/summary.h"

namespace slipstream {

class LiveRun {
 public:
  static constexpr std::size_t kMostPoints = 1000;  // of losses, and of evaluations
  static constexpr std::size_t kMostLines = 200;    // of news, and of changes
  static constexpr std::size_t kTracedSteps = 12;

  explicit LiveRun(Run about);  // what is known before the first step

  // Training thread only. `samples`: of all workers together.
  void step(const StepRecord& record, const Traffic& traffic, double samples);
  void evaluated(std::int64_t steps, const std::string& metric, double value);
  void regrouped(const GroupChange& change);

  // Any thread: the run as a report shows it.
  Run run();

  // Any thread: single figures. Times and bytes are sums over the steps of this process.
  struct Figures {
    std::string name{}, strategy{}, task{}, model{};
    StepRecord last{}, sum{};
    double hidden_fraction = 1, efficiency = 1;
    std::int64_t steps = 0, workers = 0, group = 1, recoveries = 0;  // steps: of the job
    std::string metric{};                                            // empty: nothing was evaluated yet
    double metric_value = 0;
    std::int64_t metric_steps = 0;
  };
  Figures figures() const;

 private:
  struct Traced {
    StepRecord record;
    Traffic traffic;
  };

  void add_loss(double loss);
  void trace(const StepRecord& record, const Traffic& traffic);

  SteadyClock clock_;
  mutable std::mutex mutex_;  // guards everything below
  Run run_;                   // without its timeline
  Moment now_;
  StepStatistics statistics_;
  StepRecord last_;
  std::int64_t group_ = 1, recoveries_ = 0, metric_steps_ = 0;
  std::int64_t stride_ = 1, gathered_ = 0,
               finite_ = 0;  // steps per point; steps in the current point, and those with a finite loss
  double loss_sum_ = 0;
  double watched_until_ = 0;
  std::deque<Traced> traced_;
  std::set<std::string, std::less<>> names_;  // of buckets: the engine that owns them ends with its group
};

}  // namespace slipstream
