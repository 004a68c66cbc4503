// SPDX-License-Identifier: Apache-2.0
#include "strategy/sync_sgd.h"

#include "fabric/metered_fabric.h"

namespace slipstream {

void SyncSgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  sums_.push_back(s.net.sum(s.model.grads(bucket), wire_));  // (1)
}

void SyncSgd::on_step(Step& s) {
  for (InFlight& sum : sums_) sum.wait();  // (2)
  sums_.clear();
  s.opt.step(s.model.weights(), s.model.grads(), 1.0F / static_cast<float>(s.net.size()));  // (3)
}

BucketRule SyncSgd::bucket_rule(const Options& options) {
  const auto bytes = [](double mb) { return static_cast<std::size_t>(mb * 1024 * 1024); };
  return BucketRule::by_bytes(bytes(options.first_bucket_mb), bytes(options.bucket_mb));
}

double SyncSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  double bytes = 0;
  for (const Bucket& bucket : plan_buckets(q.model, bucket_rule(options))) {
    bytes += MeteredFabric::sum_bytes(bucket.count, q.workers, parse_wire(options.wire));
  }
  return bytes;
}

void SyncSgdOptions::describe(OptionSet& o) {
  o.choice("wire", wire, {"fp32", "fp16", "bf16"}, kChangesResult,
           "number format on the wire; sums are always taken in fp32");
  o.real("first_bucket_mb", first_bucket_mb, {0, 4096}, kChangesSpeed,
         "the first bucket is sent once it holds this much; 0 sends every tensor by itself");
  o.real("bucket_mb", bucket_mb, {0, 4096}, kChangesSpeed, "the same for all later buckets");
}

}  // namespace slipstream
