// SPDX-License-Identifier: Apache-2.0
#include "strategy/server_sgd.h"

#include "base/vec.h"

namespace slipstream {

using Apply = ServerSetup::Apply;

void ServerSgd::on_start(Step& s) {
  pulled_.resize(s.model.count());
  servers_.open(s.net, bucket_parts(s.model, s.buckets, s.net.servers().count), row_.apply, false, s.opt.options(),
                s.opt.groups(),
                s.model.weights());  // (2), which the servers do: ShardServer::apply
}

void ServerSgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  if (row_.overlap) push_pull(s, bucket);
  s.left_alone = !row_.overlap;
}

void ServerSgd::on_step(Step& s) {
  if (!row_.overlap) {
    for (const Bucket& bucket : s.buckets) push_pull(s, bucket);
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

}  // namespace slipstream
