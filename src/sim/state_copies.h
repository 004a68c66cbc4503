// SPDX-License-Identifier: Apache-2.0
//
// How much a strategy remembers from one step to the next, found by asking a small simulated job: nothing to keep up to
// date by hand.
#pragma once

#include <slipstream/optim/optimizer.h>
#include <slipstream/strategy/registry.h>

#include <optional>

namespace slipstream {

// Bytes of a worker's state (strategy and optimizer, and of servers beside it their share) beside weights and gradients,
// in copies of the model at 4 bytes a parameter. None where the strategy refuses the optimizer.
std::optional<double> state_copies(const StrategyInfo& strategy, const OptimizerOptions& optimizer);

}  // namespace slipstream
