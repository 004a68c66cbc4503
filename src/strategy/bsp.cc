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

}  // namespace slipstream
