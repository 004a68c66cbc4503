// SPDX-License-Identifier: Apache-2.0
//
// All state of a worker's training that outlives a step, under its names in checkpoints: model/, optim/, engine/,
// strategy/. The number of the next step is not included.
#pragma once

#include <slipstream/model/flat_model.h>

#include "checkpoint/folder.h"
#include "checkpoint/state_archive.h"
#include "engine/engine.h"

namespace slipstream {

// Both are collectives, because strategies with servers ask them.
void save_state(StateArchive& to, Engine& engine, FlatModel& model);
void restore_state(const StateArchive& from, Engine& engine, FlatModel& model, std::int64_t next_step);

// What one of `workers` ranks brings from a checkpoint of another number of workers or servers: the mean of the
// weights, an optimizer's state, and the sum of what the saved ranks r with r mod `workers` = `rank` owed. Ranks beyond
// those of the checkpoint bring nothing.
Holdings holdings_from(const std::filesystem::path& checkpoint, const CheckpointMeta& saved, const FlatModel& model,
                       int rank, int workers);

}  // namespace slipstream
