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

}  // namespace slipstream
