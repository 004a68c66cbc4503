// SPDX-License-Identifier: Apache-2.0
//
// R2SP: round-robin synchronous parallel. Workers' updates are made one after the other, in a fixed cycle. See
// cards/r2sp.md.
//
// Every gradient is exactly P-1 updates old when it is applied; the result does not depend on times.
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
