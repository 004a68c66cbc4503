// SPDX-License-Identifier: Apache-2.0
//
// GridPlan: the cells of some grids, in the order in which they run, and the rows they belong to. A row is one
// contender in one scenario (model, link, number of workers); its cells are the seeds and repeats. All contenders of a
// seed and repeat come before the next ones, so that other load on the machine hits them alike, and so that a plan that
// was stopped still compares like with like.
//
// A cell is one command. Its key, the name of its folder, follows from the command alone: two grids that need the same
// run share it, and a cell whose command changed is another cell. A changed program does not make another cell.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compare/spec.h"

namespace slipstream {

struct Scenario {
  std::size_t grid = 0;  // index among the plan's grids
  std::string model, link;
  std::int64_t workers = 0;
};

struct Row {
  std::size_t scenario = 0;
  std::string contender;
  bool peer = false;
  std::vector<std::size_t> cells;  // by seed and repeat; the same order in all rows of a grid
};

struct Cell {
  std::size_t row = 0;
  std::int64_t seed = 0, repeat = 0;   // the first repeat is 0
  std::vector<std::string> arguments;  // of this program, without --out
  std::string key;
};

struct GridPlan {
  std::vector<GridSpec> grids;
  std::vector<Scenario> scenarios;
  std::vector<Row> rows;
  std::vector<Cell> cells;

  const Row& row_of(const Cell& cell) const { return rows[cell.row]; }
  const Scenario& scenario_of(const Row& row) const { return scenarios[row.scenario]; }
  const GridSpec& grid_of(const Row& row) const { return grids[scenario_of(row).grid]; }
  std::string scenario_text(const Scenario& scenario) const;  // "cnn, 100mbit, 2 workers"
  std::string cell_text(const Cell& cell) const;              // "cnn, 100mbit, 2 workers: lags, seed 1"
};

// Placeholder in a peer's arguments for the script, which is in the folder of the results.
inline constexpr std::string_view kPeerScript = "peer.py";

GridPlan make_plan(std::vector<GridSpec> grids, const std::string& python);

}  // namespace slipstream
