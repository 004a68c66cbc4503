// SPDX-License-Identifier: Apache-2.0
#include "strategy/r2sp.h"

namespace slipstream {

void R2sp::on_start(Step& s) {
  exchange_.start(s, ServerSetup::Apply::kTurns);  // (2)
}

void R2sp::on_bucket_ready(Step& s, const Bucket& bucket) {
  exchange_.push_pull(s, bucket, ServerClient::kAnyBehind);  // (1)
}

void R2sp::on_step(Step& s) {
  exchange_.adopt(s);  // (3)
}

void R2sp::on_finish(Step& s) { exchange_.adopt_all(s); }

StrategyInfo R2sp::info() {
  return {
      .name = "r2sp",
      .title = "round-robin synchronous parallel: workers update the servers one after the other, in a fixed cycle",
      .paper = "C. Chen, W. Wang, B. Li, Round-Robin Synchronous Parallel, INFOCOM 2019",
      .pseudo_code = {"worker q, for each bucket, as soon as backward has filled it:",
                      "  (1) push g[b] to the servers that hold it, and ask for its weights",
                      "server, in the order of workers 0, 1, … P-1, 0, …:",
                      "  (2) W[b] <- W[b] - step(g[b] of worker q / P)      answers q before it turns to q + 1",
                      "worker q, after backward:", "  (3) w <- W"},
      .bytes_per_step = "4 bytes × parameters × (P-1)/P up, the same down (with --servers S: all parameters)",
      .waits_for = "its turn: the push of the worker before it",
      .notes =
          {"Staleness is the same for all: P-1 updates of the others. The order is fixed, so runs repeat bit for bit.",
           "Each push counts 1/P, so that the learning rate means what it means with ssgd; multiply --lr by P for the "
           "papers' form.",
           "Departures: turns follow each other without the paper's evenly spaced moments, which come about by "
           "themselves once workers are out of step; batch sizes are not adapted. clip_norm is refused."},
      .configure = [] { return configure_strategy<R2sp>("r2sp"); },
  };
}

}  // namespace slipstream
