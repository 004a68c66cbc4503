// SPDX-License-Identifier: Apache-2.0
#include "strategy/local_sgd.h"

#include "fabric/metered_fabric.h"
#include "strategy/synchronous_step.h"
#include "topology/average.h"

namespace slipstream {

void LocalSgd::on_step(Step& s) {
  if (warmup_.active(s.t)) {
    synchronous_step(s);  // (1)
    return;
  }
  s.opt.step(s.model.weights(), s.model.grads());                              // (2)
  if (average_.sends(s.t - warmup_.steps)) average(s.net, s.model.weights());  // (3)
}

// A last average where the run does not end on one; ranks that agree already are left as they are, bit for bit.
void LocalSgd::on_finish(Step& s) {
  const std::int64_t last = s.t - 1;
  if (s.t == 0 || warmup_.active(last) || average_.sends(last - warmup_.steps)) return;
  average(s.net, s.model.weights());
}

double LocalSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const bool sends =
      Warmup{options.warmup_steps}.active(q.t) || Every{options.period}.sends(q.t - options.warmup_steps);
  return sends ? MeteredFabric::sum_bytes(q.model.count(), q.workers) : 0;
}

void LocalSgdOptions::describe(OptionSet& o) {
  o.integer("period", period, {1, 1'000'000}, kChangesResult, "steps between two averages (tau)");
  o.integer("warmup_steps", warmup_steps, {0, 1'000'000'000}, kChangesResult,
            "synchronous steps at the start (post-local SGD)");
}

}  // namespace slipstream
