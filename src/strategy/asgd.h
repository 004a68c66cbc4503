// SPDX-License-Identifier: Apache-2.0
//
// ASGD: asynchronous SGD through parameter servers. Nobody waits for anybody.
//
//   J. Dean et al., "Large Scale Distributed Deep Networks" (DistBelief), NIPS 2012.
//
//   worker, for each bucket, as soon as backward has filled it:
//     (1) push g[b] to the servers that hold it, and ask for its weights
//   server, on every push, at once:
//     (2) W[b] <- W[b] - step(g[b] / P)      then answer
//   worker, after backward:
//     (3) w <- W      whatever the others have done to it meanwhile
//
// Communicated per step and worker: 4 bytes × parameters each way, less what lies in the worker's own process. A
// gradient is about P-1 updates old when it is applied. The order of updates is that of arrival: two runs differ.
#pragma once

#include "strategy/server_exchange.h"

namespace slipstream {

struct AsgdOptions {
  void describe(OptionSet&) {}  // nothing to choose
};

class Asgd final : public Strategy {
 public:
  using Options = AsgdOptions;
  explicit Asgd(const Options&) {}

  static StrategyInfo info();
  static double bytes_sent(const Options&, const TrafficQuery& q) { return ServerExchange::bytes_sent(q); }
  static bool follows_clock(const Options&) { return true; }  // who comes first is served first

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
