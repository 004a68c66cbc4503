// SPDX-License-Identifier: Apache-2.0
//
// Ledger: one line of JSON per step and rank, ledger.rankR.jsonl. Times are in milliseconds; `compute_ms` includes
// `update_ms`. `weights_hash` is in the records where it was computed: equal hashes of all ranks at a step mean
// bit-identical weights there. `news` is there if the strategy decided something, such as a new plan. Lines are handed
// to the system one by one: a killed run has all but the last step.
#pragma once

#include <slipstream/engine/step_record.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace slipstream {

class Ledger {
 public:
  // With `first_step` an earlier run continues there: its lines before that step stay. ConfigError where it cannot
  // write.
  explicit Ledger(const std::string& path, std::int64_t first_step = 0);
  void write(const StepRecord& record, std::int64_t epoch, std::optional<std::uint64_t> weights_hash);

  // After `steps` steps: a line of its own, with `metric` in place of a step's figures.
  void evaluated(std::int64_t steps, const std::string& metric, double value);

  // The group of workers has changed: a line of its own, with "regroup" in place of a step's figures.
  struct Change {
    std::int64_t step = 0;  // the next step
    std::int64_t done = 0;  // steps that this rank had done
    std::int64_t group = 0, workers = 0, lost = 0, joined = 0;
    double written_off = 0;  // norm of what the lost workers owed
    double seconds = 0;
    std::string why;
  };
  void regrouped(const Change& change);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace slipstream
