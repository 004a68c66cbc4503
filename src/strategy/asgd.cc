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

}  // namespace slipstream
