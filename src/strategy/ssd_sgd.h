// SPDX-License-Identifier: Apache-2.0
//
// SSD-SGD: several steps delay. Gradients go to the servers in every step, weights come back only every k steps, and
// meanwhile each worker moves its own copy. See cards/ssd.md.
//
// Workers' weights differ between pulls; on_finish pulls everything.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <optional>
#include <string>
#include <vector>

#include "correction/local_step.h"
#include "schedule/every.h"
#include "schedule/warmup.h"
#include "server/client.h"

namespace slipstream {

struct SsdSgdOptions {
  std::int64_t period = 5;                   // changes the result, as all but the last
  std::optional<std::int64_t> warmup_steps;  // none: five periods
  std::string pull = "overlapped";
  std::string local = "glu";
  double glu_mix = 0.1;
  double local_lr = 1.0;
  bool accumulate_push = false;
  std::int64_t max_outstanding_pushes = 1;

  void describe(OptionSet& o);
  std::int64_t warmup() const { return warmup_steps.value_or(5 * period); }
};

class SsdSgd final : public Strategy {
 public:
  using Options = SsdSgdOptions;
  explicit SsdSgd(const Options& options);

  static double bytes_sent(const Options& options, const TrafficQuery& q);

  bool needs_servers() const override { return true; }
  OptimizerUse optimizer_use() const override { return OptimizerUse::kSteps; }  // the local ones
  bool clips_own() const override { return true; }
  BucketRule buckets() const override;
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor& v) override;

 private:
  bool pulls(std::int64_t t) const { return pull_.sends(t - warmup_.steps); }
  // The buffer that step t's gradients are pushed from, or added up in.
  std::span<float> outgoing(std::int64_t t);
  void fill_outgoing(Step& s, const Bucket& bucket);
  // The bucket's weight decay, times `share`, on top of its gradient in `out`.
  static void add_decay(Step& s, const Bucket& bucket, std::span<float> out, double share);
  void push(Step& s, std::size_t first, std::size_t last);
  void adopt(Step& s);

  Options options_;
  Warmup warmup_;
  Every pull_;  // counted from the end of the warm-up
  LocalStep local_;
  std::int64_t pending_ = 0;                  // has a pull been asked for and not been adopted?
  double rates_ = 0.0;                        // sum of the learning rates since the last pull was asked for …
  double period_lr_ = 1.0;                    // of the period's first step, with accumulate_push
  double pulled_rates_ = 0.0;                 // … and in the period before it
  std::vector<std::vector<float>> outgoing_;  // one more than may be outstanding
  std::vector<float> pulled_;
  ServerClient servers_;  // last: what it has in flight uses the memory above
};

}  // namespace slipstream
