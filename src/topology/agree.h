// SPDX-License-Identifier: Apache-2.0
//
// Turns numbers that every rank measured for itself into the same numbers on all ranks, so that decisions may depend on
// them. Small blocking gathers.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <span>

namespace slipstream {

// Replaces each number by its mean over the ranks.
void agree_on_means(Fabric& net, std::span<double> numbers);

}  // namespace slipstream
