// SPDX-License-Identifier: Apache-2.0
//
// gs-SGD: the large entries of the sum of all workers' gradients, found through one global Count-Sketch.
//
//   S. Dai, M. Diao, J. Li, J. Xu, "Efficient Global Sketching for Distributed SGD", arXiv 2108.06004;
//   recovery: N. Ivkin et al., "Communication-Efficient Distributed SGD with Sketching", NeurIPS 2019, arXiv
//   1903.04488.
//
//   during backward, layer by layer:
//     (1)  v <- v + g                                       what this worker owes; corrected: u <- m u + g, v <- v + u
//   after backward:
//     (2)  T <- sketch(the p1 k largest entries of v)       one table for the whole model
//     (3)  T <- sum over workers of T                       up a binomial tree and down again, blocking
//     (4)  C <- the p2 k coordinates of largest estimates   the same on all workers
//     (5)  x <- sum over workers of v[C] / P                exact values, the same tree, blocking
//     (6)  K <- the k largest of x
//     (7)  w[K] <- w[K] - lr / (1 - m) x[K]                 corrected: lr x[K]
//     (8)  v[K] <- 0                                        corrected: u[K] <- 0, too (momentum factor masking)
//
// Communicated per step and worker, each way: at most ceil(log2 P) × B bytes along the tree, 2 (P-1)/P × B around the
// ring; B = 4 × (rows × columns + small + p2 k), small: elements of tensors that are summed whole.
//
// Deviations. The paper's body and code are not at hand: this reads its abstract (a sketch of the whole gradient,
// summed along a tree, O(log d log P)) together with Sketched-SGD's recovery.
//   - Momentum is folded into the step by default. A worker's velocity before selection, as Sketched-SGD has it, is
//     momentum=corrected (masking=false: without (8)'s second half): small tables choose nearly at random, entries wait
//     for hundreds of steps, and velocities summed over such a time diverge at rates that the folded form stands.
//   - Only a worker's largest entries are sketched (Sketched-SGD's p1): the many small ones are noise to the few large
//     ones. local=0 sketches all of v, layer by layer during backward.
//   - Hashes change from step to step. Weights decay at every step, all of them (decoupled), as strongly as with
//     momentum in the long run, instead of through the memory. Small tensors have plain momentum.
// Replicas stay bit-identical.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <optional>
#include <string>
#include <vector>

#include "strategy/sketch_memory.h"
#include "topology/tree.h"

namespace slipstream {

struct GsSgdOptions : SketchOptions {
  std::string topology = "tree";  // changes the result, by rounding

  void describe(OptionSet& o);
};

class GsSgd final : public Strategy {
 public:
  using Options = GsSgdOptions;
  explicit GsSgd(const Options& options) : options_(options) { options_.check_shape(); }

  static StrategyInfo info();
  static double bytes_sent(const Options& options, const TrafficQuery& q);

  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override { memory_->visit(v); }

 private:
  void sum(Step& s, std::span<float> values);

  Options options_;
  std::optional<SketchMemory> memory_;
  TreeSum tree_;
  std::vector<float> exact_;  // scratch: x
};

}  // namespace slipstream
