// SPDX-License-Identifier: Apache-2.0
#include "strategy/sketch_memory.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cmath>

#include "base/vec.h"
#include "strategy/finite_gradient.h"

namespace slipstream {
namespace {

constexpr std::size_t kChunk = 2048;       // floats handled at a time: u, v and g of a chunk share the first cache
constexpr std::size_t kLeastEntries = 16;  // a message costs more than its first few values

// With a second round the table only has to point at the right neighbourhood; estimates that are applied as they are
// need more of it, or their errors feed on themselves.
std::size_t automatic_columns(std::size_t k, bool exact) {
  const std::size_t wanted = exact ? k : 4 * k;
  return std::max<std::size_t>(1, (wanted + sketch::kBlock - 1) / sketch::kBlock) * sketch::kBlock;
}

}  // namespace

void SketchOptions::describe(OptionSet& o) {
  o.real("density", density, {1e-6, 1.0}, kChangesResult, "share of the entries that is applied in a step (k / d)");
  o.integer("rows", rows, {3, sketch::kMaxRows}, kChangesResult,
            "rows of the table, an odd number: more of them make large errors rarer");
  o.integer("columns", columns, {0, std::int64_t{1} << 32}, kChangesResult,
            "columns of the table, a multiple of 16: errors fall with their square root; 0 stands for k, or 4 k with "
            "exact=false");
  o.real(
      "local", local, {0, 1'000'000}, kChangesResult,
      "a worker puts its so many times k largest entries into the table (p1): the rest would be noise to them; 0: all");
  o.integer("candidates", candidates, {1, 1000}, kChangesResult,
            "candidates per entry (p2), of which the second round's exact values pick one");
  o.boolean("exact", exact, kChangesResult,
            "fetch exact values in a second round; false: apply the estimates, and go on owing what they are off by");
  o.choice("recover", recover, {"topk", "heavymix"}, kChangesResult,
           "candidates are the largest estimates, or the heavy ones filled up at random, one per entry");
  o.choice("momentum", momentum, {"folded", "corrected"}, kChangesResult,
           "momentum as a longer step, lr / (1 - m); or as each worker's velocity before selection, as published");
  o.boolean("masking", masking, kChangesResult, "momentum=corrected: the velocity of what was applied is forgotten");
  o.real("dense_below", dense_below, {0.0, 1.0}, kChangesResult,
         "tensors smaller than this share of the model are summed whole, in every step");
}

void SketchOptions::check_shape() const {
  const std::int64_t wide = columns == 0 ? std::int64_t{sketch::kBlock} : columns;
  CountSketch({.rows = static_cast<int>(rows), .columns = static_cast<std::size_t>(wide)});
}

void SketchOptions::check_optimizer(const OptimizerOptions& optimizer) const {
  if (optimizer.kind == "sgd" && !optimizer.nesterov && optimizer.clip_norm == 0) return;
  fail<ConfigError>(
      "strategies with a sketch have a momentum of their own and apply plain steps: they need optimizer=sgd, without "
      "nesterov and clip_norm");
}

SketchPlan::SketchPlan(const SketchOptions& options, const FlatModel& model) {
  for (const Slot& slot : model.slots()) {
    const bool dense = static_cast<double>(slot.count) < options.dense_below * static_cast<double>(model.count());
    std::size_t& first = dense ? small_count : coordinates;
    (dense ? small : sketched).push_back({slot.offset, first, slot.count});
    first += slot.count;
  }
  const auto wanted = static_cast<std::size_t>(options.density * static_cast<double>(coordinates));
  k = std::min(coordinates, std::max(kLeastEntries, wanted));
  exact = options.exact;
  local = options.local == 0 ? coordinates
                             : std::clamp(static_cast<std::size_t>(options.local * static_cast<double>(k)),
                                          std::min<std::size_t>(1, coordinates), coordinates);
  const bool several = exact && options.recover == "topk";
  chosen = several ? std::min(coordinates, static_cast<std::size_t>(options.candidates) * k) : k;

  shape.rows = static_cast<int>(options.rows);
  shape.columns = options.columns > 0 ? static_cast<std::size_t>(options.columns) : automatic_columns(k, exact);
  if (static_cast<std::size_t>(shape.rows) * shape.columns >= coordinates) {
    // A cell for every coordinate is then smaller, and exact.
    shape = {.rows = 1, .columns = std::max<std::size_t>(1, coordinates), .identity = true};
  }
}

SketchMemory::SketchMemory(const SketchOptions& options, const FlatModel& model, float momentum)
    : options_(options),
      plan_(options, model),
      momentum_(momentum),
      residual_(model.count()),
      velocity_(options.momentum == "folded" ? 0 : model.count()),
      small_velocity_(plan_.small_count),
      message_(plan_.message_count()) {}

void SketchMemory::add(const Step& s, const Bucket& bucket) {
  if (!sketch_) {
    SketchShape shape = plan_.shape;
    shape.seed = static_cast<std::uint64_t>(s.t);  // coordinates that hide each other today do not tomorrow
    sketch_.emplace(shape);
  }
  const auto inside = [&](const SketchPlan::Piece& piece) {
    return piece.flat >= bucket.offset && piece.flat < bucket.offset + bucket.count;
  };
  for (const SketchPlan::Piece& piece : plan_.small) {
    if (inside(piece)) add_small(s, piece);
  }
  for (const SketchPlan::Piece& piece : plan_.sketched) {
    if (inside(piece)) add_sketched(s, piece);
  }
}

void SketchMemory::add_small(const Step& s, const SketchPlan::Piece& piece) {
  require_finite(s, piece.flat, piece.count);
  const auto u = std::span(small_velocity_).subspan(piece.first, piece.count);
  vec::scale(u, momentum_);
  vec::add(u, s.model.grads().subspan(piece.flat, piece.count));
  vec::copy(small_tensors().subspan(piece.first, piece.count), u);
}

void SketchMemory::add_sketched(const Step& s, const SketchPlan::Piece& piece) {
  for (std::size_t at = 0; at < piece.count; at += kChunk) {
    const std::size_t flat = piece.flat + at, count = std::min(kChunk, piece.count - at);
    require_finite(s, flat, count);
    const auto g = s.model.grads().subspan(flat, count);
    const auto v = std::span(residual_).subspan(flat, count);
    if (velocity_.empty()) {
      vec::add(v, g);
    } else {
      const auto u = std::span(velocity_).subspan(flat, count);
      vec::scale(u, momentum_);
      vec::add(u, g);
      vec::add(v, u);
    }
    if (plan_.local == plan_.coordinates) sketch_->add(piece.first + at, v);
  }
}

std::span<float> SketchMemory::message() {
  if (plan_.cells() == 0) return message_;
  if (plan_.local < plan_.coordinates) sketch_largest();
  vec::copy(std::span(message_).first(plan_.cells()), sketch_->table());
  return message_;
}

// Where small tensors are, v is 0: they are picked only if there is nothing else, and are worth nothing.
void SketchMemory::sketch_largest() {
  select_.pick(residual_, plan_.local, largest_);
  auto piece = plan_.sketched.begin();
  for (std::size_t j = 0; j < largest_.indices.size(); ++j) {
    const std::size_t flat = largest_.indices[j];
    while (piece != plan_.sketched.end() && flat >= piece->flat + piece->count) ++piece;
    if (piece == plan_.sketched.end()) return;
    if (flat >= piece->flat) sketch_->add(piece->first + (flat - piece->flat), std::span(&largest_.values[j], 1));
  }
}

std::vector<std::uint32_t> SketchMemory::choose(std::int64_t t) {
  if (plan_.cells() == 0) return {};
  vec::copy(sketch_->table(), std::span(message_).first(plan_.cells()));
  if (options_.recover == "heavymix")
    return sketch_->heavymix(plan_.coordinates, plan_.k, static_cast<std::uint64_t>(t));
  return sketch_->heaviest(plan_.coordinates, plan_.chosen);
}

// visit(j, flat index of coordinates[j]); the coordinates ascend, so the pieces are walked once.
template <typename Visit>
void SketchMemory::at_flat(std::span<const std::uint32_t> coordinates, const Visit& visit) const {
  auto piece = plan_.sketched.begin();
  for (std::size_t j = 0; j < coordinates.size(); ++j) {
    while (coordinates[j] >= piece->first + piece->count) ++piece;
    visit(j, piece->flat + (coordinates[j] - piece->first));
  }
}

void SketchMemory::owed(std::span<const std::uint32_t> coordinates, std::span<float> out) const {
  at_flat(coordinates, [&](std::size_t j, std::size_t flat) { out[j] = residual_[flat]; });
}

Sparse SketchMemory::largest(std::span<const std::uint32_t> chosen, std::span<const float> sums) {
  Sparse result;
  if (!plan_.exact) {
    result.indices.assign(chosen.begin(), chosen.end());
    for (const std::uint32_t i : chosen) result.values.push_back(sketch_->estimate_one(i));
    return result;
  }
  select_.pick(sums, plan_.k, result);
  for (std::uint32_t& position : result.indices) position = chosen[position];
  return result;
}

void SketchMemory::apply(Step& s, const Sparse& sums) {
  const auto w = s.model.weights();
  const float mean = 1.0F / static_cast<float>(s.net.size());
  const auto lr = static_cast<float>(s.opt.lr());
  const auto long_run = static_cast<float>(s.opt.lr() / (1.0 - s.opt.options().momentum));  // of steps with momentum
  const auto decay = static_cast<float>(long_run * s.opt.options().weight_decay);
  if (decay > 0) vec::add_scaled(w, w, -decay);
  for (const SketchPlan::Piece& piece : plan_.small) {
    vec::add_scaled(w.subspan(piece.flat, piece.count), small_tensors().subspan(piece.first, piece.count), -lr * mean);
  }
  const float rate = options_.momentum == "folded" ? long_run : lr;
  at_flat(sums.indices, [&](std::size_t j, std::size_t flat) {
    const float x = mean * sums.values[j];
    w[flat] -= rate * x;
    residual_[flat] = plan_.exact ? 0.0F : residual_[flat] - x;
    if (!velocity_.empty() && options_.masking) velocity_[flat] = 0.0F;
  });
  sketch_.reset();
}

void SketchMemory::visit(StateVisitor& v) {
  v.floats("residual", residual_);
  v.floats("small_velocity", small_velocity_);
  if (!velocity_.empty()) v.floats("velocity", velocity_);
}

}  // namespace slipstream
