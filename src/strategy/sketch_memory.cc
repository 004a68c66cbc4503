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
            "columns of the table, a multiple of 16: the error falls with their square root; 0 stands for k");
  o.integer("candidates", candidates, {0, 1000}, kChangesResult,
            "candidates per entry, whose exact values are fetched in a second round; 0: no such round, the estimates "
            "are applied");
  o.choice("recover", recover, {"topk", "heavymix"}, kChangesResult,
           "candidates are the largest estimates, or the heavy ones filled up at random, one per entry");
  o.choice("momentum", momentum, {"folded", "corrected"}, kChangesResult,
           "momentum on the sums, as the optimizer does it, or on each worker before selection (sgd only)");
  o.real("local", local, {0, 1000}, kChangesResult, "p1");
  o.boolean("masking", masking, kChangesResult, "forget the velocity of what was applied");
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
      "momentum=corrected puts the momentum before the selection and applies plain steps: it needs optimizer=sgd, "
      "without nesterov and clip_norm");
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
  exact = options.candidates > 0;
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
      velocity_(momentum == 0 || options.momentum != "corrected" ? 0 : model.count()),
      small_velocity_(plan_.small_count),
      message_(plan_.message_count()) {}

void SketchMemory::add(const Step& s, const Bucket& bucket) {
  const auto inside = [&](const SketchPlan::Piece& piece) {
    return piece.flat >= bucket.offset && piece.flat < bucket.offset + bucket.count;
  };
  // Other hashes in every step: coordinates that hide each other today do not tomorrow.
  if (!sketch_)
    sketch_.emplace(
        SketchShape{plan_.shape.rows, plan_.shape.columns, static_cast<std::uint64_t>(s.t), plan_.shape.identity});
  const auto gradient = s.model.grads();
  const auto velocity_at = [&](std::size_t flat, std::size_t count) -> std::span<const float> {
    const auto g = gradient.subspan(flat, count);
    if (velocity_.empty()) return g;
    const auto u = std::span(velocity_).subspan(flat, count);
    vec::scale(u, momentum_);
    vec::add(u, g);
    return u;
  };
  for (const SketchPlan::Piece& piece : plan_.small) {
    if (!inside(piece)) continue;
    require_finite(s, piece.flat, piece.count);
    const auto u = std::span(small_velocity_).subspan(piece.first, piece.count);
    vec::scale(u, momentum_);
    vec::add(u, gradient.subspan(piece.flat, piece.count));
    vec::copy(small_tensors().subspan(piece.first, piece.count), u);
  }
  for (const SketchPlan::Piece& piece : plan_.sketched) {
    if (!inside(piece)) continue;
    for (std::size_t at = 0; at < piece.count; at += kChunk) {
      const std::size_t count = std::min(kChunk, piece.count - at);
      require_finite(s, piece.flat + at, count);
      const auto v = std::span(residual_).subspan(piece.flat + at, count);
      vec::add(v, velocity_at(piece.flat + at, count));
      if (options_.local == 0) sketch_->add(piece.first + at, v);
    }
  }
}

std::span<float> SketchMemory::message() {
  if (plan_.cells() > 0 && options_.local > 0) {
    select_.pick(residual_,
                 std::min(plan_.coordinates, static_cast<std::size_t>(options_.local * static_cast<double>(plan_.k))),
                 top_);
    auto piece = plan_.sketched.begin();
    for (std::size_t j = 0; j < top_.indices.size(); ++j) {
      while (piece != plan_.sketched.end() && top_.indices[j] >= piece->flat + piece->count) ++piece;
      if (piece == plan_.sketched.end()) break;
      if (top_.indices[j] < piece->flat) continue;
      sketch_->add(piece->first + top_.indices[j] - piece->flat, std::span(&top_.values[j], 1));
    }
  }
  if (plan_.cells() > 0) vec::copy(std::span(message_).first(plan_.cells()), sketch_->table());
  return message_;
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
  const auto decay = static_cast<float>(s.opt.lr() * s.opt.options().weight_decay);
  if (decay > 0) vec::add_scaled(w, w, -decay);
  for (const SketchPlan::Piece& piece : plan_.small) {
    vec::add_scaled(w.subspan(piece.flat, piece.count), small_tensors().subspan(piece.first, piece.count), -lr * mean);
  }
  const float rate = options_.momentum == "folded" ? lr / (1.0F - momentum_) : lr;
  at_flat(sums.indices, [&](std::size_t j, std::size_t flat) {
    const float x = mean * sums.values[j];
    w[flat] -= rate * x;
    residual_[flat] = plan_.exact ? 0.0F : residual_[flat] - x;
    if (options_.masking && !velocity_.empty()) velocity_[flat] = 0.0F;
  });
  sketch_.reset();
}

void SketchMemory::visit(StateVisitor& v) {
  v.floats("residual", residual_);
  if (!velocity_.empty()) v.floats("velocity", velocity_);
  v.floats("small_velocity", small_velocity_);
}

}  // namespace slipstream
