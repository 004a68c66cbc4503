// SPDX-License-Identifier: Apache-2.0
//
// ServerExchange: the step that bsp, asgd, ssp and r2sp share: push every bucket as backward yields it, ask for its new
// weights, and take them all when backward is done. What differs is when servers apply a push, and how far behind the
// slowest worker an answer may be.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <vector>

#include "server/client.h"
#include "strategy/server_parts.h"

namespace slipstream {

class ServerExchange {
 public:
  void start(Step& s, ServerSetup::Apply apply);
  void push_pull(Step& s, const Bucket& bucket, std::int64_t behind);
  void adopt(Step& s);      // waits; w <- W
  void adopt_all(Step& s);  // the same once all workers' pushes are in: equal on all ranks
  void visit(StateVisitor& v) { servers_.visit(v); }

  static double bytes_sent(const TrafficQuery& q);

 private:
  std::vector<float> pulled_;  // apart from the weights, which backward still reads when the first buckets come back
  ServerClient servers_;       // last: what it has in flight uses the memory above
};

}  // namespace slipstream
