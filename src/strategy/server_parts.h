// SPDX-License-Identifier: Apache-2.0
//
// What strategies with servers have in common: how a model's buckets become parts, and what a worker sends.
#pragma once

#include <slipstream/model/bucket_plan.h>
#include <slipstream/strategy/registry.h>

#include <algorithm>
#include <vector>

#include "server/client.h"

namespace slipstream {

// Messages of at most 128 KiB: small enough that a server updates and answers one while it receives the next, large
// enough that their heads and round trips do not count.
inline constexpr std::size_t kPartBytes = std::size_t{1} << 17;

inline BucketRule server_buckets() { return BucketRule::by_bytes(kPartBytes, kPartBytes); }

// The parts of a model cut at the borders of its buckets.
inline std::vector<ServerPart> bucket_parts(const FlatModel& model, std::span<const Bucket> buckets, int servers) {
  std::vector<std::size_t> cuts{model.count()};
  for (const Bucket& bucket : buckets) cuts.push_back(bucket.offset);
  std::sort(cuts.begin(), cuts.end());
  return ServerClient::plan(cuts, servers, kPartBytes);
}

inline int servers_of(const TrafficQuery& q) { return q.servers > 0 ? q.servers : q.workers; }
inline std::vector<ServerPart> bucket_parts(const TrafficQuery& q) {
  return bucket_parts(q.model, plan_buckets(q.model, server_buckets()), servers_of(q));
}
// Is this server in the asking worker's process?
inline bool beside(const TrafficQuery& q, int server) { return q.servers == 0 && server == q.rank; }

// The bytes of a message about each part that goes over the wire: its head, and the floats where there are any.
inline double message_bytes(const std::vector<ServerPart>& parts, const TrafficQuery& q, bool with_floats) {
  double bytes = 0;
  for (const ServerPart& part : parts) {
    if (beside(q, part.server)) continue;
    bytes += ServerClient::kHeadBytes + (with_floats ? static_cast<double>(part.count * sizeof(float)) : 0.0);
  }
  return bytes;
}

}  // namespace slipstream
