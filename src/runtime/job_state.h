// SPDX-License-Identifier: Apache-2.0
//
// All state of a worker's training that outlives a step, under the names that checkpoints have: model/, optim/, engine/,
// strategy/. The next step's number is not among it. Both are collectives: strategies with servers ask them.
#pragma once

#include <slipstream/model/flat_model.h>

#include "checkpoint/folder.h"
#include "checkpoint/state_archive.h"
#include "engine/engine.h"

namespace slipstream {

inline void save_state(StateArchive& to, Engine& engine, FlatModel& model) {
  to.save(kModelPrefix, [&](StateVisitor& v) {
    for (const Slot& slot : model.slots()) v.floats(slot.name, model.weights().subspan(slot.offset, slot.count));
  });
  to.save("optim/", [&](StateVisitor& v) { engine.optimizer().visit(v); });
  to.save("engine/", [&](StateVisitor& v) { engine.visit(v); });
  to.save("strategy/", [&](StateVisitor& v) { engine.strategy().visit(v); });
}

inline void restore_state(const StateArchive& from, Engine& engine, FlatModel& model, std::int64_t next_step) {
  from.restore(kModelPrefix, [&](StateVisitor& v) {
    for (const Slot& slot : model.slots()) v.floats(slot.name, model.weights().subspan(slot.offset, slot.count));
  });
  from.restore("optim/", [&](StateVisitor& v) { engine.optimizer().visit(v); });
  from.restore("engine/", [&](StateVisitor& v) { engine.visit(v); });
  from.restore("strategy/", [&](StateVisitor& v) { engine.strategy().visit(v); });
  engine.go_on_from(next_step);
}

}  // namespace slipstream
