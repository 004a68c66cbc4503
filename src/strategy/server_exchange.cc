// SPDX-License-Identifier: Apache-2.0
#include "strategy/server_exchange.h"

#include "base/vec.h"

namespace slipstream {

void ServerExchange::start(Step& s, ServerSetup::Apply apply) {
  pulled_.resize(s.model.count());
  servers_.open(s.net, bucket_parts(s.model, s.net.servers().count), apply, false, s.opt.options(), s.model.weights());
}

void ServerExchange::push_pull(Step& s, const Bucket& bucket, std::int64_t behind) {
  const auto [first, last] = servers_.parts_in(bucket.offset, bucket.count);
  for (std::size_t p = first; p < last; ++p) {
    const ServerPart& part = servers_.parts()[p];
    servers_.push_pull(p, part.of(s.model.grads()), s.opt.lr(), part.of(pulled_), behind);
  }
}

void ServerExchange::adopt(Step& s) {
  servers_.wait();
  vec::copy(s.model.weights(), pulled_);
}

void ServerExchange::adopt_all(Step& s) {
  for (std::size_t p = 0; p < servers_.parts().size(); ++p) servers_.pull(p, servers_.parts()[p].of(pulled_));
  adopt(s);
}

double ServerExchange::bytes_sent(const TrafficQuery& q) {
  return message_bytes(bucket_parts(q.model, servers_of(q)), q, true);
}

}  // namespace slipstream
