// SPDX-License-Identifier: Apache-2.0
//
// R2SP: round-robin synchronous parallel. Workers' updates are made one after the other, in a fixed cycle.
//
//   C. Chen, W. Wang, B. Li, "Round-Robin Synchronization: Mitigating Communication Bottlenecks in Parameter Servers",
//   INFOCOM 2019.
//
//   worker q, for each bucket, as soon as backward has filled it:
//     (1) push g[b] to the servers that hold it, and ask for its weights
//   server, in the order of workers 0, 1, … P-1, 0, …:
//     (2) W[b] <- W[b] - step(g[b] of worker q / P)      answers q before it turns to q + 1
//   worker q, after backward:
//     (3) w <- W
//
// Communicated per step and worker: 4 bytes × parameters each way, less what lies in the worker's own process. Every
// gradient is exactly P-1 updates old when it is applied; the result does not depend on times.
//
// Departures: a worker's slot is its place in the cycle, not a moment on a clock; batches are not adapted to workers.
#pragma once

#include "strategy/server_exchange.h"

namespace slipstream {

struct R2spOptions {
  void describe(OptionSet&) {}  // nothing to choose
};

class R2sp final : public Strategy {
 public:
  using Options = R2spOptions;
  explicit R2sp(const Options&) {}

  static StrategyInfo info();
  static double bytes_sent(const Options&, const TrafficQuery& q) { return ServerExchange::bytes_sent(q); }

  bool needs_servers() const override { return true; }
  BucketRule buckets() const override { return server_buckets(); }
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor& v) override { exchange_.visit(v); }

 private:
  ServerExchange exchange_;
};

}  // namespace slipstream
