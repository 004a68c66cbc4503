// SPDX-License-Identifier: Apache-2.0
//
// Sketched-SGD: gs-SGD's ancestor, with a server (rank 0, which also works) in the middle instead of a tree.
//
//   N. Ivkin, D. Rothchild, E. Ullah, V. Braverman, I. Stoica, R. Arora, "Communication-Efficient Distributed SGD with
//   Sketching", NeurIPS 2019, arXiv 1903.04488.
//
//   during backward, layer by layer:
//     (1)  v <- v + direction(g)                             what this worker owes, in units of weights
//   after backward:
//     (2)  T <- sketch(the p1 k largest entries of v)
//     (3)  server: T <- sum over workers of T
//     (4)  server: C <- the p2 k coordinates of largest estimates, told to all
//     (5)  server: x <- sum over workers of v[C]             exact values
//     (6)  server: K <- the k largest of x, told to all with their values
//     (7)  w[K] <- w[K] - x[K] / P
//     (8)  v[K] <- 0
//
// Communicated per step: a worker sends 4 × (rows × columns + small + p2 k) bytes; the server receives that P-1 times
// and sends 4 × (p2 k + 2 k + small) bytes P-1 times; small: elements of tensors that are summed whole.
// Deviations: those of gs-SGD. Replicas stay bit-identical: everybody applies what the server told.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <optional>
#include <vector>

#include "strategy/sketch_memory.h"
#include "topology/star.h"

namespace slipstream {

class SketchedSgd final : public Strategy {
 public:
  using Options = SketchOptions;
  explicit SketchedSgd(const Options& options) : options_(options) { options_.check_shape(); }

  static StrategyInfo info();
  static double bytes_sent(const Options& options, const TrafficQuery& q);

  OptimizerUse optimizer_use() const override { return OptimizerUse::kDirections; }
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override { memory_->visit(v); }

 private:
  Options options_;
  std::optional<SketchMemory> memory_;
  Star star_;
  TopK select_;
  std::vector<std::uint32_t> chosen_;  // C
  std::vector<float> sent_;            // this worker's part of x at C
  Sparse picked_;                      // x at K
};

}  // namespace slipstream
