// SPDX-License-Identifier: Apache-2.0
//
// The --out folder of a run: the names in it, and how an earlier run's results are kept. What is written there is the
// business of those who write it (train.cc, ledger.h).
#pragma once

#include <cstdint>
#include <string>

#include "runtime/config.h"

namespace slipstream {

std::string ledger_name(int rank);

// Before any rank writes to --out: an earlier run's results stay, unless the user said otherwise. Throws ConfigError.
// `group`: of an elastic job; later ones belong to the run itself.
void protect_earlier_run(const TrainConfig& config, int rank, std::uint32_t group);

}  // namespace slipstream
