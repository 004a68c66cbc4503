// SPDX-License-Identifier: Apache-2.0
//
// Top-k SGD with error feedback (SLGS: single-layer gradient sparsification), the baseline of LAGS and gs-SGD. See
// cards/topk.md.
//
// Replicas stay bit-identical: records are added in rank order.
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

  static double bytes_sent(const Options& options, const TrafficQuery& q);

  OptimizerUse optimizer_use() const override { return OptimizerUse::kDirections; }
  void on_start(Step& s) override { exchange_.emplace(options_, s); }
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override { exchange_->visit(v); }
  std::span<float> owed() override { return exchange_->owed(); }

 private:
  Options options_;
  std::optional<SparseExchange> exchange_;
};

}  // namespace slipstream
