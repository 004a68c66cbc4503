// SPDX-License-Identifier: Apache-2.0
//
// The tables of a report as HTML: all a reader needs without scripts. Column titles explain themselves. No speed is
// shown without the accuracy or loss that it was bought with.
#pragma once

#include <string>
#include <vector>

#include "report/run.h"

namespace slipstream {

// The first run of strategy ssgd, without 16-bit sums, that a run may be compared with: same task, model, network, group,
// number of workers and batch. Null if there is none.
const Run* baseline_of(const Run& run, const std::vector<Run>& runs);

// "84.30 %" or "1.9628"; the last batch's loss where nothing was tested.
std::string result_text(const Run& run);

std::string summary_table(const std::vector<Run>& runs);
std::string changes_table(const std::vector<Run>& runs);  // faults and recoveries; empty where there are none
std::string decisions(const std::vector<Run>& runs);      // plans by layer and news; empty where there are none

}  // namespace slipstream
