// SPDX-License-Identifier: Apache-2.0
//
// SSP: stale synchronous parallel. Asynchronous SGD in which the fastest worker may be at most s steps ahead.
//
//   Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013.
//
//   worker, for each bucket, as soon as backward has filled it:
//     (1) push g[b]; ask for weights that hold all workers' steps but the last s
//   server, on every push, at once:
//     (2) W[b] <- W[b] - step(g[b] / P)      answers those for whom the slowest is far enough
//   worker, after backward:
//     (3) w <- W
//
// Communicated per step and worker: 4 bytes × parameters each way, less what lies in the worker's own process. After c
// steps a worker goes on once everybody has pushed at least c - s. The order of updates is that of arrival.
#pragma once

#include "strategy/server_exchange.h"

namespace slipstream {

struct SspOptions {
  std::int64_t staleness = 3;  // changes the result

  void describe(OptionSet& o);
};

class Ssp final : public Strategy {
 public:
  using Options = SspOptions;
  explicit Ssp(const Options& options) : options_(options) {}

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
  Options options_;
  ServerExchange exchange_;
};

}  // namespace slipstream
