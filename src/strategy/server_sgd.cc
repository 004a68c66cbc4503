// SPDX-License-Identifier: Apache-2.0
#include "strategy/server_sgd.h"

#include "base/vec.h"

namespace slipstream {

using Apply = ServerSetup::Apply;

void ServerSgd::on_start(Step& s) {
  pulled_.resize(s.model.count());
  servers_.open(s.net, bucket_parts(s.model, s.net.servers().count), row_.apply, false, s.opt.options(),
                s.model.weights());  // (2)
}

void ServerSgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  if (row_.overlap) push_pull(s, bucket);
  s.left_alone = !row_.overlap;
}

void ServerSgd::on_step(Step& s) {
  if (!row_.overlap) {
    for (const Bucket& bucket : plan_buckets(s.model, buckets())) push_pull(s, bucket);
  }
  adopt(s);
}

// Where a round is a mean, all workers hold its weights already.
void ServerSgd::on_finish(Step& s) {
  if (row_.apply == Apply::kMean || row_.apply == Apply::kMeanByArrival) return;
  for (std::size_t p = 0; p < servers_.parts().size(); ++p) servers_.pull(p, servers_.parts()[p].of(pulled_));
  adopt(s);
}

void ServerSgd::push_pull(Step& s, const Bucket& bucket) {
  const auto [first, last] = servers_.parts_in(bucket.offset, bucket.count);
  for (std::size_t p = first; p < last; ++p) {
    const ServerPart& part = servers_.parts()[p];
    servers_.push_pull(p, part.of(s.model.grads()), s.opt.lr(), part.of(pulled_), row_.behind);  // (1)
  }
}

void ServerSgd::adopt(Step& s) {
  servers_.wait(kUrgent, [&](std::size_t p) {
    const ServerPart& part = servers_.parts()[p];
    vec::copy(part.of(s.model.weights()), part.of(pulled_));  // (3)
  });
}

Bsp::Bsp(const Options& options)
    : ServerSgd({options.order == "rank" ? Apply::kMean : Apply::kMeanByArrival, 0, options.overlap}) {}

void Bsp::Options::describe(OptionSet& o) {
  o.choice(
      "order", order, {"rank", "arrival"}, kChangesResult,
      "servers add gradients up in the order of ranks, to the same bits in every run, or as they arrive, so that none "
      "waits in memory");
  o.boolean("overlap", overlap, kChangesSpeed,
            "push each bucket during backward; false: push all of them when backward is done, as papers' baselines do");
}

void Ssp::Options::describe(OptionSet& o) {
  o.integer("staleness", staleness, {0, 1'000'000}, kChangesResult,
            "steps the fastest worker may be ahead of the slowest (s)");
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
