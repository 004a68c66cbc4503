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

}  // namespace slipstream
