// SPDX-License-Identifier: Apache-2.0
#include "strategy/sketch_plan.h"

#include <slipstream/base/error.h>

#include <algorithm>

namespace slipstream {
namespace {

constexpr std::size_t kLeastEntries = 16;  // a message costs more than its first few values

std::size_t whole_blocks(std::size_t columns) {
  return std::max<std::size_t>(1, (columns + sketch::kBlock - 1) / sketch::kBlock) * sketch::kBlock;
}

}  // namespace

void SketchOptions::describe(OptionSet& o) {
  o.real("density", density, {1e-6, 1.0}, kChangesResult, "share of the entries that is applied in a step (k / d)");
  o.integer("rows", rows, {1, sketch::kMaxRows}, kChangesResult,
            "rows of the table, an odd number: more of them make false alarms rarer");
  o.integer_or_auto("columns", columns, {sketch::kBlock, std::int64_t{1} << 32}, kChangesResult,
                    "columns of the table, a multiple of 16; auto: between k and 4 k, as the recall asks, with at most "
                    "1/8 of a dense step's bytes");
  o.real("recall", recall, {0.0, 1.0}, kChangesResult,
         "columns=auto: of the energy that a table without collisions would find, the share that this one is to find");
  o.real(
      "local", local, {0, 1'000'000}, kChangesResult,
      "a worker puts its so many times k largest entries into the table (p1): the rest would be noise to them; 0: all");
  o.integer("candidates", candidates, {1, 1000}, kChangesResult,
            "candidates per entry (p2), of which the second round's exact values pick one");
  o.choice("recover", recover, {"topk", "heavymix"}, kChangesResult,
           "candidates are the largest estimates, or the heavy ones filled up at random, one per entry");
  o.integer("dense_below", dense_below, {0, std::int64_t{1} << 40}, kChangesResult,
            "tensors with fewer elements are summed whole, in every step");
}

void SketchOptions::check_shape() const {
  const auto wide = static_cast<std::size_t>(columns.value_or(sketch::kBlock));
  CountSketch({.rows = static_cast<int>(rows), .columns = wide});
}

SketchPlan::SketchPlan(const SketchOptions& options, const FlatModel& model, ValueFormat format) {
  for (const Slot& slot : model.slots()) {
    const bool dense = slot.count < static_cast<std::size_t>(options.dense_below);
    std::size_t& first = dense ? small_count : coordinates;
    (dense ? small : sketched).push_back({slot.offset, first, slot.count});
    first += slot.count;
  }
  const auto wanted = static_cast<std::size_t>(options.density * static_cast<double>(coordinates));
  k = std::min(coordinates, std::max(kLeastEntries, wanted));
  local = options.local == 0 ? coordinates
                             : std::clamp(static_cast<std::size_t>(options.local * static_cast<double>(k)),
                                          std::min<std::size_t>(1, coordinates), coordinates);
  const bool several = options.recover == "topk";
  chosen = several ? std::min(coordinates, static_cast<std::size_t>(options.candidates) * k) : k;
  shape.rows = static_cast<int>(options.rows);
  shape.estimate = several ? sketch::Estimate::kMin : sketch::Estimate::kMedian;

  budget_ = kMostOfDense * 8.0 * static_cast<double>(model.count());
  cell_ = format == ValueFormat::kInt8 ? 1.0 : static_cast<double>(values_bytes(1, format));
  values_ = static_cast<double>(values_bytes(chosen, format));
  const double back = static_cast<double>(chosen / 8 + values_bytes(k, format));
  least_columns = whole_blocks(k);
  most_columns =
      std::max(least_columns, affordable_columns(2, 8.0 * static_cast<double>(small_count) + values_ + back));
  shape = with_columns(options.columns ? static_cast<std::size_t>(*options.columns) : least_columns);
}

// Of the budget, what is left to so many tables beside other bytes.
std::size_t SketchPlan::affordable_columns(double tables, double others) const {
  const double columns = std::max(0.0, budget_ - others) / (tables * cell_ * shape.rows);
  return std::min(whole_blocks(4 * k), static_cast<std::size_t>(columns) / sketch::kBlock * sketch::kBlock);
}

std::size_t SketchPlan::most_columns_to_everybody(int ranks) const {
  return affordable_columns(ranks, ranks * (4.0 * static_cast<double>(small_count) + values_));
}

SketchShape SketchPlan::with_columns(std::size_t columns) const {
  SketchShape table = shape;
  table.columns = columns;
  if (!table.identity && cells(table) < coordinates) return table;
  return {.rows = 1, .columns = std::max<std::size_t>(1, coordinates), .identity = true};
}

}  // namespace slipstream
