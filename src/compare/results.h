// SPDX-License-Identifier: Apache-2.0
//
// Results: what the cells of a plan came to, by row, and whether limits and claims hold. Ratios are taken within one
// seed and repeat, then their median: other load on the machine cancels out. Only arithmetic: no files, no processes.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "compare/cell.h"
#include "compare/grid.h"

namespace slipstream {

using CellOutcomes = std::vector<std::optional<CellOutcome>>;  // by cell of the plan; nothing: it has not run

struct Spread {
  double middle = std::nan(""), least = std::nan(""), most = std::nan("");
};

struct RowResult {
  int good = 0, failed = 0, missing = 0;                      // cells
  Spread step_ms;                                             // median
  double samples_per_second = 0, efficiency = 0, hidden = 0;  // medians
  Phases phases;                                              // means, so that they add up
  double bytes_sent = 0, bytes_of_dense = 0;                  // means
  Spread over_dense, over_16_bit;                             // medians of ratios of samples per second
  bool by_loss = false, tested = false;                       // what kind of score it is
  Spread score;                                               // mean: accuracy in percent, or loss
  double difference = 0;  // to the reference, mean over the cells: points of accuracy, or percent of its loss
  std::optional<double> limit;
  std::optional<bool> holds;     // nothing: no limit, or a cell is missing
  int reached = 0;               // cells in which the target was reached
  double seconds_to_target = 0;  // median of these
};

struct Verdict {
  std::string text;
  std::optional<bool> holds;  // nothing: a cell that it needs is missing or failed
};

struct Results {
  std::vector<RowResult> rows;                 // as in the plan; unknown values are NaN
  std::vector<std::vector<Verdict>> verdicts;  // by scenario

  // Counts limits and claims that do not hold or cannot be judged, and cells of strategies that failed or are missing.
  // A peer's failure is a result, not a miss.
  int misses(const GridPlan& plan) const;
};

Results judge(const GridPlan& plan, const CellOutcomes& outcomes);

// Seconds of training until an evaluation was at least as good as the target; nothing: none was.
std::optional<double> seconds_to_target(const Run& run, double target);

double median_of(std::vector<double> values);  // NaN of none

}  // namespace slipstream
