// SPDX-License-Identifier: Apache-2.0
//
// What the plots of a report draw, as JSON for page/page.js; plain ASCII. Long curves become means of equally many
// points, so that a page stays small whatever the length of its runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "report/run.h"

namespace slipstream {

std::string page_data(const std::vector<Run>& runs);

// The same for a run in progress, with tables as HTML by their places in the page. The script asks for it repeatedly.
std::string live_page_data(const Run& run, const std::map<std::string, std::string>& tables);

}  // namespace slipstream
