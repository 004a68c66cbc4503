// SPDX-License-Identifier: Apache-2.0
#include "engine/job_state.h"

#include <slipstream/base/error.h>

#include <algorithm>

#include "base/vec.h"

namespace slipstream {
namespace {

constexpr const char* kOptimizer = "optim/";
constexpr const char* kEngine = "engine/";
constexpr const char* kStrategy = "strategy/";
constexpr const char* kOwed = "strategy/residual";  // as Strategy::owed() promises

void visit_weights(StateVisitor& v, FlatModel& model) {
  for (const Slot& slot : model.slots()) v.floats(slot.name, model.weights().subspan(slot.offset, slot.count));
}

const std::vector<float>* floats_of(const StateArchive& state, const std::string& name) {
  const auto found = state.entries().find(name);
  return found == state.entries().end() ? nullptr : std::get_if<std::vector<float>>(&found->second);
}

}  // namespace

void save_state(StateArchive& to, Engine& engine, FlatModel& model) {
  to.save(kModelPrefix, [&](StateVisitor& v) { visit_weights(v, model); });
  to.save(kOptimizer, [&](StateVisitor& v) { engine.optimizer().visit(v); });
  to.save(kEngine, [&](StateVisitor& v) { engine.visit(v); });
  to.save(kStrategy, [&](StateVisitor& v) { engine.strategy().visit(v); });
}

void restore_state(const StateArchive& from, Engine& engine, FlatModel& model, std::int64_t next_step) {
  from.restore(kModelPrefix, [&](StateVisitor& v) { visit_weights(v, model); });
  from.restore(kOptimizer, [&](StateVisitor& v) { engine.optimizer().visit(v); });
  from.restore(kEngine, [&](StateVisitor& v) { engine.visit(v); });
  from.restore(kStrategy, [&](StateVisitor& v) { engine.strategy().visit(v); });
  engine.go_on_from(next_step);
}

Holdings holdings_from(const std::filesystem::path& checkpoint, const CheckpointMeta& saved, const FlatModel& model,
                       int rank, int workers) {
  if (rank >= saved.workers) return {};
  Holdings mine{.steps = saved.step, .rank = rank, .workers = static_cast<int>(saved.workers)};
  const StateArchive weights = read_model(checkpoint, saved);
  mine.weights.resize(model.count());
  for (const Slot& slot : model.slots()) {
    const auto* values = floats_of(weights, slot.name);
    if (values == nullptr || values->size() != slot.count) {
      fail<ConfigError>("{} has no '{}' of {} values; resume with the model it was saved with", checkpoint.string(),
                        slot.name, slot.count);
    }
    std::copy(values->begin(), values->end(), mine.weights.begin() + static_cast<std::ptrdiff_t>(slot.offset));
  }
  for (std::int64_t from = rank; from < saved.workers; from += workers) {
    StateArchive state = read_rank(checkpoint, saved, from);
    if (const auto* owed = floats_of(state, kOwed)) {
      mine.owed.resize(owed->size());
      vec::add_scaled(std::span(mine.owed), std::span<const float>(*owed), 1.0F);
    }
    for (const auto& [name, value] : state.entries()) {
      if (!name.starts_with(kStrategy)) continue;
      const std::string_view own = std::string_view(name).substr(std::string_view(kStrategy).size());
      if (const auto* floats = std::get_if<std::vector<float>>(&value)) mine.servers.note(own, *floats, model.count());
      if (const auto* integer = std::get_if<std::int64_t>(&value)) mine.servers.note(own, *integer);
    }
    if (from != rank) continue;
    std::vector<std::string> names;
    for (const auto& [name, value] : state.entries()) {
      if (name.starts_with(kOptimizer) || name.starts_with(kEngine)) names.push_back(name);
    }
    for (const std::string& name : names) mine.state.take(state, name);
  }
  return mine;
}

}  // namespace slipstream
