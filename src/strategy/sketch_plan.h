// SPDX-License-Identifier: Apache-2.0
//
// SketchOptions and SketchPlan: what strategies with a Count-Sketch (gs-SGD, Sketched-SGD) can be told, and the sizes
// that all workers derive from that and from the model. Small tensors (biases, affine parameters) are not sketched.
// Coordinates number the elements of the other tensors, in the model's order.
#pragma once

#include <slipstream/base/option.h>
#include <slipstream/model/flat_model.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codec/count_sketch.h"
#include "codec/value_format.h"

namespace slipstream {

struct SketchOptions {
  double density = 0.02;  // all change the result
  std::int64_t rows = 3;
  std::optional<std::int64_t> columns;  // empty: follows the recall that is measured
  double recall = 0.7;
  double local = 1;
  std::int64_t candidates = 2;
  std::string recover = "topk";
  std::int64_t dense_below = 4096;

  void describe(OptionSet& o);
  void check_shape() const;  // ConfigError where no table looks like that
};

struct SketchPlan {
  SketchPlan(const SketchOptions& options, const FlatModel& model, ValueFormat format);  // of the values

  struct Piece {  // a tensor: its place in the model, and among the coordinates or among the small ones
    std::size_t flat, first, count;
  };
  std::vector<Piece> sketched, small;
  std::size_t coordinates = 0;  // d
  std::size_t small_count = 0;
  std::size_t k = 0;                                // coordinates that are applied in a step
  std::size_t local = 0;                            // coordinates that a worker puts into its table
  std::size_t chosen = 0;                           // coordinates that the summed table points out: p2 k, or k
  SketchShape shape;                                // at the start
  std::size_t least_columns = 0, most_columns = 0;  // where they follow the recall

  // The most of a dense step's bytes that a step takes with the widest table that is chosen automatically.
  static constexpr double kMostOfDense = 1.0 / 8;
  // most_columns where everybody sends everything to everybody, in one round each: P / 2 times the bytes. Fewer than
  // least_columns where no table is narrow enough.
  std::size_t most_columns_to_everybody(int ranks) const;

  // The shape with so many columns: one with a cell for every coordinate where that is no larger, and exact.
  SketchShape with_columns(std::size_t columns) const;
  static std::size_t cells(const SketchShape& shape) { return static_cast<std::size_t>(shape.rows) * shape.columns; }
  // Does a step end in a look at the recall?
  static bool looks_at_recall(std::int64_t t) { return t % 100 == 20; }

 private:
  std::size_t affordable_columns(double tables, double others) const;

  double budget_ = 0;  // bytes a step may take, times P / (P-1)
  double cell_ = 0;    // bytes of a table's cell
  double values_ = 0;  // bytes of the chosen ones' values
};

}  // namespace slipstream
