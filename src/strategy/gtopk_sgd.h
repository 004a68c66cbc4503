// SPDX-License-Identifier: Apache-2.0
//
// gTop-k SGD: as top-k SGD, but only about the k largest entries of the sum are applied, found along a tree. See
// cards/gtopk.md.
//
// Replicas stay bit-identical: everybody applies what rank 0 found. With putback=conservative nothing is lost: the rank
// that drops an entry owes it from then on.
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
  explicit GtopkSgd(const Options& options);  // ConfigError for a short wire with putback=published

  static double bytes_sent(const Options& options, const TrafficQuery& q);

  OptimizerUse optimizer_use() const override { return OptimizerUse::kDirections; }
  void on_start(Step& s) override { owed_.emplace(s.model.count(), s.opt.memory()); }
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override { owed_->visit(v); }
  std::span<float> owed() override { return owed_->residual(); }

 private:
  void put_back(const Sparse& own, const Sparse& global);

  Options options_;
  std::optional<ErrorFeedback> owed_;
  SparseTree tree_;
  Sparse own_, dropped_;  // scratch
};

}  // namespace slipstream
