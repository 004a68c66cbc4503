// SPDX-License-Identifier: Apache-2.0
//
// ServerSgd: SGD through parameter servers, in its four classic forms. All of them push every bucket as backward yields
// it, ask for its new weights, and take them all when backward is done. See cards/bsp.md, cards/asgd.md, cards/ssp.md and
// cards/r2sp.md.
//
// They differ in how a push is applied and in how far behind the slowest worker an answer may be:
//
//   name   a push is applied                              an answer may be behind by
//   bsp    once all are there: their mean                  nothing
//   asgd   at once, with a P-th of the rate                anything
//   ssp    at once, with a P-th of the rate                `staleness` steps
//   r2sp   in turns of the workers, with a P-th of it      anything
//
// The optimizer's state lives on the servers. With bsp replicas stay bit-identical; the others' are made equal at the
// end, when everybody takes the weights that hold all pushes.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <string>
#include <vector>

#include "server/client.h"
#include "strategy/server_parts.h"

namespace slipstream {

class ServerSgd : public Strategy {
 public:
  struct Row {
    ServerSetup::Apply apply = ServerSetup::Apply::kMean;
    std::int64_t behind = 0;  // steps
    bool overlap = true;      // push during backward
  };
  explicit ServerSgd(const Row& row) : row_(row) {}

  bool needs_servers() const override { return true; }
  BucketRule buckets() const override { return server_buckets(); }
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor& v) override { servers_.visit(v); }

 protected:
  static double bytes_of(const TrafficQuery& q) { return message_bytes(bucket_parts(q), q, true); }

 private:
  void push_pull(Step& s, const Bucket& bucket);
  void adopt(Step& s);

  Row row_;
  std::vector<float> pulled_;  // apart from the weights, which backward still reads when the first buckets come back
  ServerClient servers_;       // last: what it has in flight uses the memory above
};

class Bsp final : public ServerSgd {
 public:
  struct Options {
    std::string order = "rank";  // changes the last bits
    bool overlap = true;         // changes only speed
    void describe(OptionSet& o);
  };
  explicit Bsp(const Options& options);
  static double bytes_sent(const Options&, const TrafficQuery& q) { return bytes_of(q); }
  static bool follows_clock(const Options& options) { return options.order == "arrival"; }
};

class Asgd final : public ServerSgd {
 public:
  struct Options {
    void describe(OptionSet&) {}  // nothing to choose
  };
  explicit Asgd(const Options&) : ServerSgd({ServerSetup::Apply::kArrival, ServerClient::kAnyBehind}) {}
  static double bytes_sent(const Options&, const TrafficQuery& q) { return bytes_of(q); }
  static bool follows_clock(const Options&) { return true; }  // who comes first is served first
};

class Ssp final : public ServerSgd {
 public:
  struct Options {
    std::int64_t staleness = 3;  // changes the result
    void describe(OptionSet& o);
  };
  explicit Ssp(const Options& options) : ServerSgd({ServerSetup::Apply::kArrival, options.staleness}) {}
  static double bytes_sent(const Options&, const TrafficQuery& q) { return bytes_of(q); }
  static bool follows_clock(const Options&) { return true; }
};

class R2sp final : public ServerSgd {
 public:
  struct Options {
    void describe(OptionSet&) {}
  };
  explicit R2sp(const Options&) : ServerSgd({ServerSetup::Apply::kTurns, ServerClient::kAnyBehind}) {}
  static double bytes_sent(const Options&, const TrafficQuery& q) { return bytes_of(q); }
};

}  // namespace slipstream
