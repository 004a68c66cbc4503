// SPDX-License-Identifier: Apache-2.0
//
// From the names of parameter groups to where they lie in a model.
#pragma once

#include <slipstream/model/flat_model.h>
#include <slipstream/optim/parameter_group.h>

#include <vector>

#include "engine/agreement.h"

namespace slipstream {

// Where the groups lie in this model; empty without groups. Throws ConfigError, with the model's names, for a name that
// matches no parameter, and for a parameter in two groups.
GroupMap map_groups(const std::vector<ParameterGroup>& groups, const FlatModel& model);

// How many of the model's tensors are in the group.
std::size_t tensors_in(const ParameterGroup& group, const FlatModel& model);

// Adds one fact for every group.
void add_groups(Facts& facts, const std::vector<ParameterGroup>& groups);

}  // namespace slipstream
