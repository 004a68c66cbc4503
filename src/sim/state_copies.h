// SPDX-License-Identifier: Apache-2.0
//
// How much a strategy remembers from one step to the next, measured in a small simulated job, so that nothing has to be
// kept up to date by hand.
#pragma once

#include <slipstream/optim/optimizer.h>
#include <slipstream/strategy/registry.h>

#include <optional>

namespace slipstream {

// Bytes of a worker's state (strategy, optimizer and, with servers beside it, its share of theirs) apart from weights
// and gradients, in copies of the model at 4 bytes a parameter. Nothing if the strategy refuses the optimizer.
std::optional<double> state_copies(const StrategyInfo& strategy, const OptimizerOptions& optimizer);

}  // namespace slipstream
