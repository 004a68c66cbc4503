// SPDX-License-Identifier: Apache-2.0
//
// SSP: stale synchronous parallel. Asynchronous SGD in which the fastest worker may be at most s steps ahead. See
// cards/ssp.md.
//
// The order of updates is that of arrival, so two runs differ; on_finish leaves all workers with the same weights.
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
