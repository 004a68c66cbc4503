// SPDX-License-Identifier: Apache-2.0
#include "strategy/topk_sgd.h"

namespace slipstream {

void TopkSgd::on_step(Step& s) {
  const Bucket whole{.count = s.model.count(), .end_slot = s.model.slots().size()};
  exchange_->start(s, whole, options_.entries(whole.count, s.t));
  exchange_->finish(s);
}

double TopkSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  return options.bytes_sent(q.model.count(), q);
}

}  // namespace slipstream
