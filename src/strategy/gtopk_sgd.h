// SPDX-License-Identifier: Apache-2.0
//
// gTop-k SGD: as top-k SGD, but only about the k largest entries of the sum are applied, found along a tree.
//
//   S. Shi, Q. Wang, K. Zhao, Z. Tang, Y. Wang, X. Huang, X. Chu, "A Distributed Synchronous SGD Algorithm with Global
//   Top-k Sparsification for Low Bandwidth Networks", ICDCS 2019, arXiv 1901.04359.
//
//   after backward:
//     (1)  e <- e + direction(g)                             what this worker owes: lr / (1 - m) g
//     (2)  s <- the k largest entries of e, moved out of e
//     (3)  up a binomial tree: s <- the k largest of s + the child's s
//     (4)  S <- rank 0's s, copied down the tree             blocking
//     (5)  e <- e + what this worker dropped in (3)          or, published: + its own entries that are not in S
//     (6)  w <- w - S / P                                    and decay
//
// Communicated per step and worker, each way: at most ceil(log2 P) records of k values and k indices.
//
// Deviations: the published rule (putback=published) loses what an inner rank dropped of a coordinate that reaches G by
// another way; by default the rank that drops something owes it from then on, and nothing is lost. Any number of ranks,
// not only powers of two. Replicas stay bit-identical.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <optional>
#include <string>

#include "correction/error_feedback.h"
#include "strategy/sparse_exchange.h"
#include "topology/sparse_tree.h"

namespace slipstream {

struct GtopkSgdOptions : SparseOptions {
  std::string putback = "conservative";  // changes the result

  void describe(OptionSet& o);
};

class GtopkSgd final : public Strategy {
 public:
  using Options = GtopkSgdOptions;
  explicit GtopkSgd(const Options& options) : options_(options) {}

  static StrategyInfo info();
  static double bytes_sent(const Options& options, const TrafficQuery& q);

  OptimizerUse optimizer_use() const override { return OptimizerUse::kDirections; }
  void on_start(Step& s) override { owed_.emplace(s.model.count(), s.opt.memory()); }
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override { owed_->visit(v); }

 private:
  void put_back(const Sparse& own, const Sparse& global);

  Options options_;
  std::optional<ErrorFeedback> owed_;
  SparseTree tree_;
  Sparse own_, dropped_;  // scratch
};

}  // namespace slipstream
