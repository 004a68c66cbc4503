// SPDX-License-Identifier: Apache-2.0
//
// The results of a comparison as files: results.md for people, results.json for programs, report.html with charts. In
// all of them a speed is shown beside the result it was bought with, and failures are listed with their causes.
#pragma once

#include <filesystem>
#include <string>

#include "compare/results.h"
#include "report/report.h"

namespace slipstream {

std::string results_markdown(const GridPlan& plan, const Results& results, const CellOutcomes& outcomes);
std::string results_json(const GridPlan& plan, const Results& results, const CellOutcomes& outcomes);

// The part of report.html above the runs.
GridPart grid_part(const GridPlan& plan, const Results& results, const CellOutcomes& outcomes);
// The runs shown below it: the first good one of every row, named by its contender.
std::vector<Run> shown_runs(const GridPlan& plan, const CellOutcomes& outcomes);

}  // namespace slipstream
