// SPDX-License-Identifier: Apache-2.0
//
// BSP: synchronous SGD through parameter servers, the reference of the strategies that use them.
//
//   M. Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014.
//
//   worker, for each bucket, as soon as backward has filled it:
//     (1)  push g[b] to the servers that hold it, and ask for its new weights
//   server, once every worker's g[b] is there:
//     (2)  W[b] <- W[b] - step(mean of g[b])                the sum in rank order; then answer
//   worker, after backward:
//     (3)  w <- W
//
// Communicated per step and worker: 4 bytes × parameters up, the same down, less what lies in the worker's own process.
// All replicas stay bit-identical, and equal to ssgd's. The optimizer's state lives on the servers.
#pragma once

#include <string>

#include "strategy/server_exchange.h"

namespace slipstream {

struct BspOptions {
  std::string order = "rank";  // changes the last bits
  bool overlap = true;         // changes only speed

  void describe(OptionSet& o);
};

class Bsp final : public Strategy {
 public:
  using Options = BspOptions;
  explicit Bsp(const Options& options) : options_(options) {}

  static StrategyInfo info();
  static double bytes_sent(const Options&, const TrafficQuery& q) { return ServerExchange::bytes_sent(q); }
  static bool follows_clock(const Options& options) { return options.order == "arrival"; }

  bool needs_servers() const override { return true; }
  BucketRule buckets() const override { return server_buckets(); }
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override { exchange_.visit(v); }

 private:
  Options options_;
  ServerExchange exchange_;
};

}  // namespace slipstream
