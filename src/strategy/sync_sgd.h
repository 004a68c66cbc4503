// SPDX-License-Identifier: Apache-2.0
//
// S-SGD: synchronous data-parallel SGD, the reference of every other strategy here.
//
//   A. Sergeev, M. Del Balso, "Horovod", arXiv 1802.05799; S. Li et al., "PyTorch Distributed", VLDB 2020 (buckets);
//   the overlap with backward is "wait-free back-propagation", H. Zhang et al., USENIX ATC 2017.
//
//   for each bucket, as soon as backward has filled it:
//     (1)  start  G[b] <- sum over workers of g[b]          overlaps the rest of backward
//   after backward:
//     (2)  wait for all buckets
//     (3)  w <- w - step(G / P)                             one pass over the model
//
// Communicated per step and worker: 2 (P-1)/P × 4 bytes × parameters, each way (a ring all-reduce); half of it with 16
// bits. All replicas stay bit-identical. Clipping limits the norm of the averaged gradient, as one worker with the
// P-fold batch would.
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

  static StrategyInfo info();
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
