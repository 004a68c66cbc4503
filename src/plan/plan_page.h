// SPDX-License-Identifier: Apache-2.0
//
// Plans as a page: what `slipstream plan` prints, with bars, in the frame of a report (report/report.h).
#pragma once

#include <vector>

#include "plan/plan.h"
#include "report/report.h"

namespace slipstream {

GridPart plan_part(const std::vector<Plan>& plans);

}  // namespace slipstream
