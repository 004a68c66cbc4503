// SPDX-License-Identifier: Apache-2.0
//
// run_worker: one worker of `slipstream train`, from joining to the summary; run_server: one process that only serves.
// No torch in this header.
#pragma once

#include "runtime/config.h"

namespace slipstream {

// Returns the exit code: 0, or 130 after a stop on request (partial results are kept). Errors are thrown.
int run_worker(const TrainConfig& config, const Registry& registry, const Rendezvous& at);

// Needs no configuration: the workers send it everything.
int run_server(const Rendezvous& at);

}  // namespace slipstream
