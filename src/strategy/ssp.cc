// SPDX-License-Identifier: Apache-2.0
#include "strategy/ssp.h"

namespace slipstream {

void Ssp::on_start(Step& s) {
  exchange_.start(s, ServerSetup::Apply::kArrival);  // (2)
}

void Ssp::on_bucket_ready(Step& s, const Bucket& bucket) {
  exchange_.push_pull(s, bucket, options_.staleness);  // (1)
}

void Ssp::on_step(Step& s) {
  exchange_.adopt(s);  // (3)
}

void Ssp::on_finish(Step& s) { exchange_.adopt_all(s); }

void SspOptions::describe(OptionSet& o) {
  o.integer("staleness", staleness, {0, 1'000'000}, kChangesResult,
            "steps the fastest worker may be ahead of the slowest (s)");
}

StrategyInfo Ssp::info() {
  return {
      .name = "ssp",
      .title = "stale synchronous parallel: asynchronous SGD in which nobody gets more than s steps ahead",
      .paper =
          "Q. Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, NIPS 2013",
      .pseudo_code = {"worker, for each bucket, as soon as backward has filled it:",
                      "  (1) push g[b]; ask for weights that hold all workers' steps but the last s",
                      "server, on every push, at once:",
                      "  (2) W[b] <- W[b] - step(g[b] / P)      answers those for whom the slowest is far enough",
                      "worker, after backward:", "  (3) w <- W"},
      .bytes_per_step = "4 bytes × parameters × (P-1)/P up, the same down (with --servers S: all parameters)",
      .waits_for = "the slowest worker, where it is more than s steps behind",
      .notes = {"staleness=0 keeps all workers in step, as bsp, but adds gradients in the order of arrival; a large "
                "one is asgd.",
                "Each push counts 1/P, so that the learning rate means what it means with ssgd; multiply --lr by P for "
                "the papers' form.",
                "Who comes first is served first: two runs differ in their rounding. clip_norm is refused."},
      .configure = [] { return configure_strategy<Ssp>("ssp"); },
  };
}

}  // namespace slipstream
