// SPDX-License-Identifier: Apache-2.0
//
// The figures of a run as Prometheus text (exposition format 0.0.4): HELP and TYPE of each, labels run, strategy, model and
// task.
#pragma once

#include <string>

#include "watch/live_run.h"

namespace slipstream {

std::string prometheus_text(const LiveRun::Figures& figures);

}  // namespace slipstream
