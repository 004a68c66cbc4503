// SPDX-License-Identifier: Apache-2.0
//
// Runs the cells of a plan that have not ended well yet, one after another in the plan's order, and shows on standard
// error how far it is and how long the rest will take. A cell is expected to take what its row took, else its scenario,
// else any cell; before the first one ends the time is a guess, and called so.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "compare/cell.h"
#include "compare/grid.h"

namespace slipstream {

struct RunRules {
  std::vector<std::string> program;  // the words of the command that starts this program
  std::vector<std::string> again;    // contenders, with or without their options, whose cells run again
  double timeout_seconds = 900;      // of one cell
  double minutes = std::numeric_limits<double>::infinity();  // no cell begins after this time
};

enum class Ending { kComplete, kTimeOver, kInterrupted };

// Seconds that cells took, and what to expect of others.
class Durations {
 public:
  void add(const GridPlan& plan, const Cell& cell, double seconds);
  double expect(const GridPlan& plan, const Cell& cell) const;
  bool guesses() const { return all_.empty(); }
  static constexpr double kGuess = 30;

 private:
  std::map<std::size_t, std::vector<double>> by_row_, by_scenario_;
  std::vector<double> all_;
};

// Indices of the plan's cells that are to run. A command that several rows share occurs once.
std::vector<std::size_t> cells_to_run(const GridPlan& plan, const CellFolder& folder,
                                      const std::vector<std::string>& again);

std::string plan_text(const GridPlan& plan, const CellFolder& folder, const std::vector<std::string>& again);

Ending run_plan(const GridPlan& plan, const CellFolder& folder, const RunRules& rules);

}  // namespace slipstream
