// SPDX-License-Identifier: Apache-2.0
#include "strategy/asgd.h"

namespace slipstream {

void Asgd::on_start(Step& s) {
  exchange_.start(s, ServerSetup::Apply::kArrival);  // (2)
}

void Asgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  exchange_.push_pull(s, bucket, ServerClient::kAnyBehind);  // (1)
}

void Asgd::on_step(Step& s) {
  exchange_.adopt(s);  // (3)
}

void Asgd::on_finish(Step& s) { exchange_.adopt_all(s); }

StrategyInfo Asgd::info() {
  return {
      .name = "asgd",
      .title = "asynchronous SGD through parameter servers: every push is an update at once, nobody waits",
      .paper = "B. Recht et al., Hogwild!, NIPS 2011; J. Dean et al., Large Scale Distributed Deep Networks, NIPS 2012",
      .pseudo_code = {"worker, for each bucket, as soon as backward has filled it:",
                      "  (1) push g[b] to the servers that hold it, and ask for its weights",
                      "server, on every push, at once:", "  (2) W[b] <- W[b] - step(g[b] / P)      then answer",
                      "worker, after backward:", "  (3) w <- W      whatever the others have done to it meanwhile"},
      .bytes_per_step = "4 bytes × parameters × (P-1)/P up, the same down (with --servers S: all parameters)",
      .waits_for = "its own push and pull only",
      .notes = {"A gradient was taken at weights that about P-1 updates of others have changed since; large P or "
                "momentum needs a smaller rate.",
                "Each push counts 1/P, so that the learning rate means what it means with ssgd; multiply --lr by P for "
                "the papers' form.",
                "Who comes first is served first: two runs differ in their rounding. clip_norm is refused.",
                "A run ends when all pushes are applied: all workers then take the same weights."},
      .configure = [] { return configure_strategy<Asgd>("asgd"); },
  };
}

}  // namespace slipstream
