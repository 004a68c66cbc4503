// SPDX-License-Identifier: Apache-2.0
//
// CellFolder: the cells of a plan on disk, OUT/cells/KEY each, and how one is run. A cell's folder holds what
// `slipstream train` left there, the output of its processes (log.txt, stdout.txt) and, once it has ended by itself,
// cell.json: the command, how long it took, and why it failed if it did. A cell that was killed with the plan has no
// cell.json and counts as not run.
//
// One child at a time, one compute thread per worker. No child outlives this process.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compare/grid.h"
#include "report/run.h"

namespace slipstream {

struct CellOutcome {
  std::string failed;      // why; empty: it is good
  double seconds = 0;      // how long its process took
  std::optional<Run> run;  // only of a good one
};

class CellFolder {
 public:
  explicit CellFolder(std::filesystem::path out) : out_(std::move(out)) {}

  const std::filesystem::path& out() const { return out_; }
  std::filesystem::path folder(const Cell& cell) const { return out_ / "cells" / cell.key; }

  // How long it took if it has ended well; nothing if it must run.
  std::optional<double> finished_seconds(const Cell& cell) const;
  // Nothing if it has not ended. A result that cannot be read is a failure.
  std::optional<CellOutcome> outcome(const GridPlan& plan, const Cell& cell) const;

  // The command as for a shell: `program` starts this program.
  std::vector<std::string> command(const std::vector<std::string>& program, const Cell& cell) const;

  // Runs it, whatever was there before. False: it was interrupted, and counts as not run. `tick` comes several times a
  // second.
  bool run(const std::vector<std::string>& program, const Cell& cell, double timeout_seconds,
           const std::function<void()>& tick) const;

 private:
  std::filesystem::path out_;
};

// The line that says why a process ended: the first that mentions an error, else the last.
std::string cause_of_death(const std::string& log);

}  // namespace slipstream
