// SPDX-License-Identifier: Apache-2.0
//
// What the columns of a comparison say, as plain text: for both the Markdown table and the page. An unknown value is a
// dash.
#pragma once

#include <string>
#include <vector>

#include "compare/results.h"

namespace slipstream {

std::string score_text(const RowResult& row);                         // "84.30 %" or "1.9628"
std::string score_range(const RowResult& row);                        // "84.10–84.52", empty for one cell
std::string difference_text(const RowResult& row);                    // "-0.18" or "+1.13 %"
std::string step_range(const RowResult& row);                         // "81.2–90.3", empty for one cell
std::string ratio_text(double ratio);                                 // "1.52 ×"
std::string target_text(const GridSpec& grid, const RowResult& row);  // "12.3 s", "not reached", "12.3 s (2 of 3)"
std::string target_name(const GridSpec& grid);                        // "85 %" or "1.9"
std::string limit_text(const RowResult& row);                         // "0.5 points" or "2 %"
std::string holds_text(const std::optional<bool>& holds);             // "yes", "no", "not run"
std::string clock_text(double seconds);                               // "1:02:03", "4:05"

// Why the cells of a row failed, each cause once with its seeds: "seed 1, 2: …".
std::vector<std::string> failures_of(const GridPlan& plan, const Row& row, const CellOutcomes& outcomes);

std::string shell_text(const std::vector<std::string>& words);  // quoted where a shell needs it

}  // namespace slipstream
