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

// Collects the step records of one rank.
class StepStatistics {
 public:
  void add(const StepRecord& record) { records_.push_back(record); }
  std::int64_t steps() const { return static_cast<std::int64_t>(records_.size()); }

  // Of a step's record: a member such as &StepRecord::seconds, or &StepRecord::useful_seconds.
  using Field = std::function<double(const StepRecord&)>;
  double median_ms(const Field& field) const;
  double mean_ms(const Field& field) const;  // without the same steps
  double mean(const Field& field) const;     // over all steps
  // 1 - blocked time / time on the wire, in [0, 1]; 1 where nothing was sent.
  double hidden_fraction() const { return hidden(&StepRecord::exposed_seconds, &StepRecord::wire_seconds); }
  double background_hidden_fraction() const {
    return hidden(&StepRecord::background_exposed_seconds, &StepRecord::background_wire_seconds);
  }
  // The share of its time that the worker computed: total compute and update / total time. (Medians would hide the one step in
  // many where a periodic strategy waits.)
  double efficiency() const;

 private:
  static constexpr std::size_t kSkippedSteps = 5;
  std::size_t first() const { return records_.size() > kSkippedSteps ? kSkippedSteps : 0; }

  double total(const Field& field) const;
  double hidden(const Field& exposed, const Field& wire) const;

  std::vector<StepRecord> records_;
};

struct Summary {
  std::string strategy, task, model, optimizer;
  std::string host, date;                                    // where and when it ended
  std::vector<std::pair<std::string, std::string>> options;  // of the strategy
  std::int64_t parameters = 0, workers = 1, servers = 0, first_step = 0, seed = 0, batch = 0;
  double lr = 0, wall_seconds = 0, samples_per_second = 0, final_loss = 0;
  StepStatistics steps;
  std::string metric;  // "test_accuracy" or "test_loss"
  double metric_value = 0;
  bool agreement = false;
  bool interrupted = false;
  std::string out;

  std::string to_json() const;  // one line
  std::string to_text() const;  // a few lines
};

}  // namespace slipstream
