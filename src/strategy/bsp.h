// SPDX-License-Identifier: Apache-2.0
//
// BSP: synchronous SGD through parameter servers, the reference of the strategies that use them. See cards/bsp.md.
//
// All replicas stay bit-identical, and equal to ssgd's (order=rank). The optimizer's state lives on the servers.
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
