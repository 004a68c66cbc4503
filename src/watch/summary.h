// SPDX-License-Identifier: Apache-2.0
//
// Summary: what a run came to, for people and as summary.json. Medians leave out the first 5 steps (all steps count
// where there are no more). The keys are a contract with other tools: add, never rename.
#pragma once

#include <slipstream/engine/step_record.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace slipstream {

// Collects the step records of one rank, in bounded memory: sums of all steps, and a sample of at most kMostSampled of
// them, evenly spread, for medians.
class StepStatistics {
 public:
  void add(const StepRecord& record);
  std::int64_t steps() const { return steps_; }

  // A linear function of a step's record: a member such as &StepRecord::seconds, or &StepRecord::useful_seconds.
  using Field = std::function<double(const StepRecord&)>;
  double median_ms(const Field& field) const;
  double mean_ms(const Field& field) const;  // leaves out the same steps
  double mean(const Field& field) const;     // over all steps
  // 1 - blocked time / time on the wire, in [0, 1]; 1 where nothing was sent.
  double hidden_fraction() const { return hidden(&StepRecord::exposed_seconds, &StepRecord::wire_seconds); }
  double background_hidden_fraction() const {
    return hidden(&StepRecord::background_exposed_seconds, &StepRecord::background_wire_seconds);
  }
  // The share of its time that the worker computed: total compute and update / total time. (Medians would hide the one
  // step in many where a periodic strategy waits.)
  double efficiency() const;

  static constexpr std::size_t kMostSampled = 4096;

 private:
  static constexpr std::int64_t kSkippedSteps = 5;
  const StepRecord& counted() const { return steps_ > kSkippedSteps ? later_ : all_; }
  std::int64_t counted_steps() const { return steps_ > kSkippedSteps ? steps_ - kSkippedSteps : steps_; }

  double hidden(const Field& exposed, const Field& wire) const;

  std::int64_t steps_ = 0;
  StepRecord all_, later_;                  // sums: of all steps, and without the skipped ones
  std::vector<StepRecord> early_, sample_;  // the skipped ones; every stride_-th of the others
  std::int64_t stride_ = 1;
};

// "test accuracy 87.25 %" or "test loss 1.9628", of the metrics "test_accuracy" and "test_loss".
std::string metric_text(const std::string& metric, double value);

struct Summary {
  std::string strategy, task, model, optimizer;
  std::string host, date;                                    // where and when it ended
  std::vector<std::pair<std::string, std::string>> options;  // of the strategy
  std::int64_t parameters = 0, workers = 1, servers = 0, first_step = 0, seed = 0, batch = 0;
  double lr = 0, wall_seconds = 0, samples_per_second = 0, final_loss = 0;
  StepStatistics steps;
  std::int64_t threads = 0;        // of rank 0's process, at the end
  double switches_per_step = 0;    // times that its threads went to sleep
  std::vector<double> compute_ms;  // of a step, by rank; empty: alone, or not told
  std::vector<double> recoveries;  // of an elastic job: seconds from a loss to the next group's first step
  std::string metric;              // "test_accuracy" or "test_loss"
  double metric_value = 0;
  bool agreement = false;
  bool interrupted = false;
  std::string out;

  std::string advice() const;   // what to do about time that is not spent computing; empty: a single worker
  std::string to_json() const;  // one line
  std::string to_text() const;  // a few lines
};

}  // namespace slipstream
