// SPDX-License-Identifier: Apache-2.0
//
// S-SGD: synchronous data-parallel SGD, the reference of every other strategy here. See cards/ssgd.md.
//
// All replicas stay bit-identical.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <string>
#include <vector>

namespace slipstream {

struct SyncSgdOptions {
  std::string wire = "fp32";     // changes the result
  double first_bucket_mb = 1.0;  // changes only speed
  double bucket_mb = 8.0;

  void describe(OptionSet& o);
};

class SyncSgd final : public Strategy {
 public:
  using Options = SyncSgdOptions;
  explicit SyncSgd(const Options& options) : options_(options), wire_(parse_wire(options.wire)) {}

  static double bytes_sent(const Options& options, const TrafficQuery& q);

  BucketRule buckets() const override { return bucket_rule(options_); }
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void visit(StateVisitor&) override {}  // nothing outlives a step

 private:
  static BucketRule bucket_rule(const Options& options);

  Options options_;
  Wire wire_;
  std::vector<InFlight> sums_;  // in plan order
};

}  // namespace slipstream
