// SPDX-License-Identifier: Apache-2.0
//
// The --out folder of a run: the names in it, and how an earlier run's results are protected. The writers (train.cc,
// ledger.h) decide what is in the files.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/config.h"

namespace slipstream {

std::string ledger_name(int rank);

// Call before any rank writes to --out. Throws ConfigError if that would overwrite an earlier run's results and the
// user did not allow it. `group`: of an elastic job; files found by later groups are the run's own.
void protect_earlier_run(const TrainConfig& config, int rank, std::uint32_t group);

}  // namespace slipstream
