// SPDX-License-Identifier: Apache-2.0
//
// ASGD: asynchronous SGD through parameter servers. Nobody waits for anybody. See cards/asgd.md.
//
// The order of updates is that of arrival, so two runs differ; on_finish leaves all workers with the same weights.
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
