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

StrategyInfo LocalSgd::info() {
  return {
      .name = "local",
      .title = "local SGD: every worker trains alone for some steps, then all average their weights",
      .paper = "S. U. Stich, Local SGD Converges Fast and Communicates Little, ICLR 2019 (arXiv 1805.09767)",
      .pseudo_code = {"each step t:", "  (1) in the warm-up:  w <- w - step(mean of all workers' g)",
                      "  (2) else:            w <- w - step(g)                 own gradient, own optimizer state",
                      "  (3) every tau steps: w <- mean of all workers' w      blocking"},
      .bytes_per_step = "2 (P-1)/P × 4 bytes × parameters / tau each way, on average",
      .waits_for = "every worker's weights, every tau steps",
      .notes = {"The optimizer's state stays local and is kept across averages.",
                "The learning rate is that of one worker's batch; clipping acts on the worker's own gradient.",
                "A run that ends between two averages gets a last one, so all workers finish equal."},
      .configure = [] { return configure_strategy<LocalSgd>("local"); },
  };
}

}  // namespace slipstream
