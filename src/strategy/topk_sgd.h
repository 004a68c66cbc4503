// SPDX-License-Identifier: Apache-2.0
//
// Top-k SGD with error feedback (SLGS: single-layer gradient sparsification), the baseline of LAGS and gs-SGD.
//
//   A. F. Aji, K. Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017, arXiv 1704.05021;
//   momentum correction: Y. Lin et al., "Deep Gradient Compression", ICLR 2018, arXiv 1712.01887.
//
//   after backward:
//     (1)  e <- e + g                                        what this worker owes; or u <- m u + g, e <- e + u
//     (2)  s <- the k largest entries of e, moved out of e
//     (3)  G <- sum over workers of s                        all-gather of indices and values, blocking
//     (4)  w <- w - step(G / P)                              dense; with momentum correction w <- w - lr G / P
//
// Communicated per step and worker: (P-1) records of k values and k indices (differences of one to four bytes).
// One selection over the whole model, so nothing overlaps backward. Replicas stay bit-identical: records are added in
// rank order. Clipping acts on the averaged sparse gradient; it cannot be used with momentum correction.
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

  void on_start(Step& s) override;
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override { exchange_->visit(v); }

 private:
  Options options_;
  std::optional<SparseExchange> exchange_;
};

}  // namespace slipstream
