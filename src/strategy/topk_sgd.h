// SPDX-License-Identifier: Apache-2.0
//
// Top-k SGD with error feedback (SLGS: single-layer gradient sparsification), the baseline of LAGS and gs-SGD.
//
//   A. F. Aji, K. Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017, arXiv 1704.05021;
//   momentum correction: Y. Lin et al., "Deep Gradient Compression", ICLR 2018, arXiv 1712.01887.
//
//   after backward:
//     (1)  e <- e + direction(g)                             what this worker owes: lr / (1 - m) g
//     (2)  s <- the k largest entries of e, moved out of e
//     (3)  S <- sum over workers of s                        all-gather of indices and values, blocking
//     (4)  w <- w - S / P                                    and decay
//
// Communicated per step and worker: (P-1) records of k values and k indices (differences of one to four bytes).
// One selection over the whole model, so nothing overlaps backward. Replicas stay bit-identical: records are added in
// rank order.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <optional>

#include "strategy/sparse_exchange.h"

namespace slipstream {

class TopkSgd final : public Strategy {
 public:
  using Options = SparseOptions;
  explicit TopkSgd(const Options& options) : options_(options) {}

  static StrategyInfo info();
  static double bytes_sent(const Options& options, const TrafficQuery& q);

  OptimizerUse optimizer_use() const override { return OptimizerUse::kDirections; }
  void on_start(Step& s) override { exchange_.emplace(options_, s); }
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override { exchange_->visit(v); }

 private:
  Options options_;
  std::optional<SparseExchange> exchange_;
};

}  // namespace slipstream
