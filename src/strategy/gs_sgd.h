// SPDX-License-Identifier: Apache-2.0
//
// gs-SGD: the large entries of the sum of all workers' gradients, found through one global Count-Sketch.
//
//   S. Dai, M. Diao, J. Li, J. Xu, "Efficient Global Sketching for Distributed SGD", arXiv 2108.06004;
//   recovery: N. Ivkin et al., "Communication-Efficient Distributed SGD with Sketching", NeurIPS 2019, arXiv
//   1903.04488.
//
//   during backward, layer by layer:
//     (1)  u <- m u + g;  v <- v + u                        velocity, and what this worker owes
//     (2)  T <- T + sketch(v)                               one table for the whole model
//   after backward:
//     (3)  T <- sum over workers of T                       up a binomial tree and down again, blocking
//     (4)  C <- the p2 k coordinates of largest estimates   the same on all workers
//     (5)  x <- sum over workers of v[C] / P                exact values, the same tree, blocking
//     (6)  K <- the k largest of x
//     (7)  w[K] <- w[K] - lr x[K]
//     (8)  v[K] <- 0;  u[K] <- 0                            momentum factor masking
//
// Communicated per step and worker, each way: at most ceil(log2 P) × 4 × (rows × columns + small + p2 k) bytes along
// the tree, 2 (P-1)/P × the same around the ring; small: elements of tensors that are summed whole. Other sparse sums
// grow with P, or pay for indices.
//
// Deviations: the paper's body is not at hand; this reads its abstract (a sketch of the whole gradient, summed along a
// tree, O(log d log P)) together with Sketched-SGD's recovery. Hashes change from step to step. Weights decay at every
// step, all of them (decoupled), instead of through the memory. Replicas stay bit-identical.
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
