// SPDX-License-Identifier: Apache-2.0
//
// LAGS-SGD: layer-wise adaptive gradient sparsification. Each layer's largest entries leave while backward works on the
// layers before it, and as many of them as hide behind that work. See cards/lags.md.
//
// The plan (strategy/lags_plan) is made of the mean times of all workers (strategy/lags_meter), so it is the same
// everywhere; what the times were may change it from run to run, but never lets replicas differ. adaptive=false uses the
// density throughout: then the result is a function of the data alone. Replicas stay bit-identical: records are added in rank order.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <optional>
#include <string>
#include <vector>

#include "strategy/lags_meter.h"
#include "strategy/lags_plan.h"
#include "strategy/lags_statistics.h"
#include "strategy/sparse_exchange.h"

namespace slipstream {

struct LagsOptions : SparseOptions {
  std::optional<double> max_density;  // changes the result, as all of them do; none: 1 / P
  bool adaptive = true;
  std::int64_t merge_elements = 8192;
  std::int64_t replan_every = 500;

  LagsOptions() { density = 0.005; }
  void describe(OptionSet& o);
};

class LagsSgd final : public Strategy {
 public:
  using Options = LagsOptions;
  explicit LagsSgd(const Options& options) : options_(options) {}

  static double bytes_sent(const Options& options, const TrafficQuery& q);
  static bool follows_clock(const Options& options) { return options.adaptive; }

  OptimizerUse optimizer_use() const override { return OptimizerUse::kDirections; }
  BucketRule buckets() const override { return BucketRule::per_slot(); }
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& layer) override;
  void on_step(Step& s) override;
  void on_finish(Step&) override { statistics_.take(); }
  void visit(StateVisitor& v) override;
  std::span<float> owed() override { return exchange_->owed(); }
  std::string news() override { return std::exchange(news_, {}); }

 private:
  bool plans(std::int64_t t) const;
  void plan(Step& s);
  void note_memory(Step& s, const LagsGroup& group);
  void tell(const std::string& text) { news_ += (news_.empty() ? "" : "; ") + text; }
  std::string describe_plan(const FlatModel& model) const;

  Options options_;
  std::optional<SparseExchange> exchange_;
  std::vector<LagsGroup> groups_;  // the plan, in backward order
  std::size_t next_ = 0;           // of groups_, this step
  Bucket gathering_;               // layers of the next group that are ready

  std::optional<LagsMeter> meter_;
  LagsTimes planned_with_;
  LagsStatistics statistics_;
  std::string news_;
};

}  // namespace slipstream
