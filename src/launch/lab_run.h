// SPDX-License-Identifier: Apache-2.0
//
// run_in_lab: any command, once on every host of a fresh network lab. Implements `slipstream lab --hosts N --rate RATE
// -- COMMAND…`, and measures programs that know nothing of Slipstream on the same network.
#pragma once

#include <string>
#include <vector>

#include "lab/lab.h"

namespace slipstream {

// Host i gets RANK=i, WORLD_SIZE=hosts, MASTER_ADDR (host 0), MASTER_PORT=29500 and GLOO_SOCKET_IFNAME=e0; everything
// else is inherited. Returns when all have ended: the worst exit code (128 + n for an end by signal n), 127 if there is
// no such command, 130 if SIGINT or SIGTERM came (it is passed on; a second one kills).
// After a failure the other hosts have some seconds to notice and end by themselves, then they are ended; their exit
// codes do not count. No command outlives this process. Call it on the main thread of a program without other children.
int run_in_lab(const LabSpec& spec, int hosts, std::vector<std::string> command);

}  // namespace slipstream
