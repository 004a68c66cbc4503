// SPDX-License-Identifier: Apache-2.0
//
// Numbers that every rank measured for itself, made one number that all ranks hold: what a decision may depend on.
// Small blocking gathers.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <span>

namespace slipstream {

// Replaces each number by its mean over the ranks.
void agree_on_means(Fabric& net, std::span<double> numbers);

}  // namespace slipstream
