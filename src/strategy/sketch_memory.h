// SPDX-License-Identifier: Apache-2.0
//
// SketchMemory: the worker's side of the strategies that find the large entries of a sum of gradients through a
// Count-Sketch (gs-SGD, Sketched-SGD). It holds what the worker owes (v) and its velocity (u), makes the table, chooses
// coordinates by a summed table and applies what was agreed on. How sums come about is the strategy's business.
//
// A step, on every worker:   add() layer by layer;  message() is summed over the workers;  choose();
//                            owed() at the chosen ones is summed;  largest();  apply()
//
// Small tensors (biases, affine parameters) are not sketched: they travel whole behind the table, with plain momentum.
// Coordinates number the elements of the other tensors, in the model's order.
//
// Invariant: what the workers owe plus what they applied is what they accumulated, exactly at coordinates with exact
// values and to rounding elsewhere. Choices depend on the summed message and the step alone: equal on all workers.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codec/count_sketch.h"
#include "codec/sparse.h"
#include "codec/topk.h"

namespace slipstream {

struct SketchOptions {
  double density = 0.001;  // changes the result
  std::int64_t rows = 3;
  std::int64_t columns = 0;
  double local = 1;
  std::int64_t candidates = 4;
  bool exact = true;
  std::string recover = "topk";
  std::string momentum = "folded";
  bool masking = true;
  double dense_below = 0.001;

  void describe(OptionSet& o);
  void check_shape() const;  // ConfigError where no table looks like that
  // ConfigError where the optimizer would come after a momentum that is in here already.
  void check_optimizer(const OptimizerOptions& optimizer) const;
};

// Sizes that all workers derive from the options and the model.
struct SketchPlan {
  SketchPlan(const SketchOptions& options, const FlatModel& model);

  struct Piece {  // a tensor: its place in the model, and among the coordinates or among the small ones
    std::size_t flat, first, count;
  };
  std::vector<Piece> sketched, small;
  std::size_t coordinates = 0;  // d
  std::size_t small_count = 0;
  std::size_t local = 0;   // coordinates a worker puts into its table; all where it does so layer by layer
  std::size_t k = 0;       // coordinates that are applied in a step
  std::size_t chosen = 0;  // coordinates that the summed table points out: k, or p2 k whose exact values decide
  bool exact = true;       // is there a second round?
  SketchShape shape;

  std::size_t cells() const { return coordinates == 0 ? 0 : static_cast<std::size_t>(shape.rows) * shape.columns; }
  std::size_t message_count() const { return cells() + small_count; }  // floats of the first round
  std::size_t owed_count() const { return exact ? chosen : 0; }        // floats of the second
};

class SketchMemory {
 public:
  SketchMemory(const SketchOptions& options, const FlatModel& model, float momentum);

  const SketchPlan& plan() const { return plan_; }

  // v = v + g (or u = m u + g, v = v + u) for the tensors of this bucket; into the table, too, where all of v goes
  // there.
  void add(const Step& s, const Bucket& bucket);

  // The table, then the small tensors: to be summed over the workers, in place. After the last bucket, once a step.
  std::span<float> message();
  std::span<float> small_tensors() { return std::span(message_).subspan(plan_.cells()); }

  // The coordinates that the summed message points out, in ascending order.
  std::vector<std::uint32_t> choose(std::int64_t t);

  // v at these coordinates.
  void owed(std::span<const std::uint32_t> coordinates, std::span<float> out) const;

  // The k largest of the chosen coordinates by their summed values, or, without a second round, all with estimates.
  Sparse largest(std::span<const std::uint32_t> chosen, std::span<const float> sums);

  // Moves the weights by the means of `sums` and of the summed small tensors; forgets what was applied.
  void apply(Step& s, const Sparse& sums);

  void visit(StateVisitor& v);

 private:
  void add_small(const Step& s, const SketchPlan::Piece& piece);
  void add_sketched(const Step& s, const SketchPlan::Piece& piece);
  void sketch_largest();
  template <typename Visit>
  void at_flat(std::span<const std::uint32_t> coordinates, const Visit& visit) const;

  SketchOptions options_;
  SketchPlan plan_;
  float momentum_;
  std::vector<float> residual_;        // v; 0 where small tensors are
  std::vector<float> velocity_;        // u; empty where the momentum is folded
  std::vector<float> small_velocity_;  // of the small tensors
  std::optional<CountSketch> sketch_;  // of this step
  std::vector<float> message_;
  Sparse largest_;  // scratch
  TopK select_;
};

}  // namespace slipstream
