// SPDX-License-Identifier: Apache-2.0
//
// SketchMemory: the worker's side of the strategies that find the large entries of a sum through a Count-Sketch (gs-SGD,
// Sketched-SGD). It holds what the worker owes (v), in units of weights, makes the table, chooses coordinates by a
// summed table and applies what was agreed on. How sums come about is the strategy's business.
//
// A step, on every worker:   add() layer by layer;  table() and small() are summed over the workers;  choose();
//                            leaving() at the chosen ones is summed, and the largest sums are picked;  apply()
//
// Small tensors travel whole in every step. Momentum is in the memory (correction/error_feedback.h): an entry that is
// sent in every step, as theirs are, moves as with momentum, and one that waited long gives all at once.
//
// Invariant: what was applied plus what is owed is what was handed in, to the rounding of floats. Choices depend on the
// summed table and the step alone: equal on all workers.
#pragma once

#include <slipstream/strategy/strategy.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "codec/sparse.h"
#include "codec/topk.h"
#include "correction/error_feedback.h"
#include "strategy/sketch_plan.h"

namespace slipstream {

class SketchMemory {
 public:
  // `momentum`: of the optimizer (Optimizer::memory).
  SketchMemory(const SketchOptions& options, const FlatModel& model, double momentum, ValueFormat format);

  const SketchPlan& plan() const { return plan_; }
  std::size_t columns() const { return shape_.columns; }

  // Owes this bucket's directions. In the order of the plan, once for each bucket.
  void add(Step& s, const Bucket& bucket);

  // To be summed over the workers, in place. After the last bucket.
  std::span<float> small() { return small_sums_; }
  std::span<float> table();

  // The coordinates that the summed table points out, in ascending order.
  const std::vector<std::uint32_t>& choose(std::int64_t t);
  void chosen(std::span<const std::uint32_t> told) { chosen_.assign(told.begin(), told.end()); }  // by a server

  // What would leave at these coordinates if they were picked.
  void leaving(const Step& s, std::span<const std::uint32_t> coordinates, std::span<float> out);

  // Moves the weights by the means of what was picked, given as positions in choose()'s list and their sums, and of the
  // small tensors' sums. `sent` is this worker's part of all chosen ones: what was picked of it is owed no longer.
  // `lost` came off the sums by rounding and is owed by this worker from now on.
  void apply(Step& s, const Sparse& picked, std::span<const float> sent, const Sparse& lost = {});

  // With columns=auto, now and then: makes the table wider or narrower, on all workers alike, with at most `most` columns
  // where that is not fewer than the plan's least. Before apply().
  void follow_recall(Step& s, const Sparse& picked, std::size_t most);
  static double recall_bytes(const SketchPlan& plan, int workers);  // that this sends
  double recall() const { return recall_; }                         // when it was last looked at; 0: never

  void visit(StateVisitor& v);
  std::span<float> owed() { return owed_.residual(); }

 private:
  void add_small(Step& s, const SketchPlan::Piece& piece);
  void add_sketched(Step& s, const SketchPlan::Piece& piece);
  void begin(Step& s);
  std::span<float> residual() { return owed_.residual(0, plan_.coordinates); }  // v
  template <typename Visit>
  void at_flat(std::span<const std::uint32_t> coordinates, const Visit& visit) const;

  SketchOptions options_;
  SketchPlan plan_;
  SketchShape shape_;                  // as it is now
  ErrorFeedback owed_;                 // v by coordinate, and behind it that of the small tensors
  float ahead_ = 0;                    // of this step: lr where Nesterov looks ahead
  std::vector<float> small_sums_;      // what leaves of them
  std::optional<CountSketch> sketch_;  // of this step
  std::vector<std::uint32_t> chosen_;  // of this step
  double recall_ = 0;
  Sparse largest_;  // what of v is in the table, where not all is
  TopK select_;
};

}  // namespace slipstream
