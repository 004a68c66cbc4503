// SPDX-License-Identifier: Apache-2.0
#include "strategy/bsp.h"

namespace slipstream {

void Bsp::on_start(Step& s) {
  exchange_.start(s, options_.order == "rank" ? ServerSetup::Apply::kMean : ServerSetup::Apply::kMeanByArrival);  // (2)
}

void Bsp::on_bucket_ready(Step& s, const Bucket& bucket) {
  if (options_.overlap) exchange_.push_pull(s, bucket, 0);  // (1)
  s.left_alone = !options_.overlap;
}

void Bsp::on_step(Step& s) {
  if (!options_.overlap) {
    for (const Bucket& bucket : plan_buckets(s.model, buckets())) exchange_.push_pull(s, bucket, 0);
  }
  exchange_.adopt(s);  // (3)
}

void BspOptions::describe(OptionSet& o) {
  o.choice(
      "order", order, {"rank", "arrival"}, kChangesResult,
      "servers add gradients up in the order of ranks, to the same bits in every run, or as they arrive, so that none "
      "waits in memory");
  o.boolean("overlap", overlap, kChangesSpeed,
            "push each bucket during backward; false: push all of them when backward is done, as papers' baselines do");
}

StrategyInfo Bsp::info() {
  return {
      .name = "bsp",
      .title = "synchronous SGD through parameter servers: push gradients, pull weights, in every step",
      .paper = "M. Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014",
      .pseudo_code = {"worker, for each bucket, as soon as backward has filled it:",
                      "  (1) push g[b] to the servers that hold it, and ask for its new weights",
                      "server, once every worker's g[b] is there:",
                      "  (2) W[b] <- W[b] - step(mean of g[b])      summed in rank order; then answer",
                      "worker, after backward:", "  (3) w <- W"},
      .bytes_per_step =
          "4 bytes × parameters × (P-1)/P up, the same down; the shard in a worker's process moves as "
          "much again for the others (with --servers S: all parameters, nothing for others)",
      .waits_for = "every worker's gradient, in every step",
      .notes = {"Bit for bit the weights of ssgd, with one update on a server in place of one on every worker.",
                "By default every worker's process holds a P-th of the model; --servers S starts S processes that only "
                "serve. A single server's port carries the traffic of all workers.",
                "The learning rate is that of the global batch. clip_norm is refused: no server sees the whole "
                "gradient."},
      .configure = [] { return configure_strategy<Bsp>("bsp"); },
  };
}

}  // namespace slipstream
