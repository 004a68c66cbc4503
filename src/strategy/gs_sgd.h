// SPDX-License-Identifier: Apache-2.0
//
// gs-SGD: the large entries of the sum of all workers' gradients, found through one global Count-Sketch.
//
//   L. Dai, B. Diao, C. Li, Y. Xu, "A Distributed SGD Algorithm with Global Sketching for Deep Learning Training
//   Acceleration", arXiv 2108.06004; recovery: N. Ivkin et al., "Communication-Efficient Distributed SGD with
//   Sketching", NeurIPS 2019, arXiv 1903.04488.
//
//   during backward, layer by layer:
//     (1)  v <- v + direction(g)                            what this worker owes, in units of weights
//   after backward:
//     (2)  T <- sketch(the p1 k largest entries of v)       one table for the whole model
//     (3)  T <- sum over workers of T                       blocking
//     (4)  C <- the p2 k coordinates of largest estimates   the same on all workers
//     (5)  x <- sum over workers of v[C]                    exact values, blocking
//     (6)  K <- the k largest of x
//     (7)  w[K] <- w[K] - x[K] / P
//     (8)  v[K] <- 0
//
// Communicated per step and worker, each way, with width 2 bytes (wire=bf16) or 4:
//   direct   (P-1)/P × (2 width × rows × columns + (width + 1/8) p2 k + width k): table by reduce-scatter and
//            all-gather; candidates to the rank that picks from them, which sends everybody what it picked
//   tree     at most ceil(log2 P) × 4 × (rows × columns + p2 k), as published
// and 2 (P-1)/P × 4 bytes of every element of small tensors, which are summed whole.
//
// Deviations. The paper's body and code are not at hand: this reads its abstract (a sketch of the whole gradient,
// summed along a tree, O(log d log P)) together with Sketched-SGD's recovery.
//   - Sketches add up, so they need no tree: a direct exchange has two delays and 2 (P-1)/P of the bytes where a tree
//     has 2 log2 P and log2 P. topology=tree is the published form, with the same results to rounding.
//   - (1) is Optimizer::direction, so sgd (momentum folded into the rate), Nesterov, adam and adamw all work; of (8) a
//     share stays where density is so high that entries do not wait (Optimizer::leaving). Weights decay at every step.
//   - (2) takes a worker's largest entries only (Sketched-SGD's p1): the many small ones are noise to the few large
//     ones. (4) estimates by the min of the rows instead of their median. Hashes change from step to step.
//   - (6) picks k/P from each of P shares of the candidates, dealt in turn.
//   - The table's columns follow the recall (SketchMemory::follow_recall) between k and 8 k.
// Replicas stay bit-identical.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <optional>
#include <string>
#include <vector>

#include "strategy/sketch_memory.h"
#include "topology/pick_exchange.h"
#include "topology/tree.h"

namespace slipstream {

struct GsSgdOptions : SketchOptions {
  std::string topology = "auto";  // both change the result, by rounding
  std::string wire = "bf16";

  void describe(OptionSet& o);
  Wire format(int workers) const { return workers == 1 || topology == "tree" ? Wire::kFp32 : parse_wire(wire); }
};

class GsSgd final : public Strategy {
 public:
  using Options = GsSgdOptions;
  explicit GsSgd(const Options& options) : options_(options) { options_.check_shape(); }

  static StrategyInfo info();
  static double bytes_sent(const Options& options, const TrafficQuery& q);
  static bool follows_clock(const Options& options) { return options.topology == "auto"; }

  OptimizerUse optimizer_use() const override { return OptimizerUse::kDirections; }
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override;
  std::string news() override;

 private:
  bool tree_is_faster(Fabric& net);
  void sum(Step& s, std::span<float> values);
  Sparse pick(Step& s, std::span<float> values, Sparse& lost);

  Options options_;
  bool along_tree_ = false;
  std::optional<SketchMemory> memory_;
  TreeSum tree_;
  PickExchange direct_;
  TopK select_;
  std::vector<float> sent_;  // scratch: this worker's part of x
  std::size_t told_columns_ = 0;
};

}  // namespace slipstream
