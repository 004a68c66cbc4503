// SPDX-License-Identifier: Apache-2.0
//
// Collective operations of a simulated job. A rank's n-th collective meets every other rank's n-th; kind and size must
// agree. It begins when the last rank has issued it and takes the time that the mesh's algorithm (fabric/mesh_sum.h)
// takes on these links: everybody sends to everybody, once, or twice for a sum that is not short. A sum adds in rank
// order, in fp32, so that its result does not depend on who came when; with 16 bits on the wire every part is rounded
// before and the total after.
//
// A collective that lost a rank (crash, partition, a rank that gave up) ends in a FabricError at each rank's deadline.
// The timeout is for peers that do not take part, not for slow links: data that is moving may take its time.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "sim/sim_operation.h"

namespace slipstream {

class SimCollectives {
 public:
  explicit SimCollectives(SimCore& core) : core_(core), issued_(static_cast<std::size_t>(core.hosts.workers)) {}

  InFlight sum(int rank, std::span<float> values, Wire wire);
  InFlight gather(int rank, std::span<const std::byte> mine, std::span<std::byte> all);

  void lose_rank(int rank);          // it crashed: collectives that it is part of break
  void cut(const Fault& partition);  // collectives that are under way break

 private:
  struct Collective;
  class CollectiveOperation;

  // This rank's next collective; the first rank to come creates it.
  std::shared_ptr<Collective> join(int rank, std::string_view kind, std::size_t bytes);
  void start_if_complete(const std::shared_ptr<Collective>& collective);

  SimCore& core_;
  std::vector<std::int64_t> issued_;                          // by rank
  std::map<std::int64_t, std::shared_ptr<Collective>> open_;  // not yet issued by all
  std::vector<std::shared_ptr<Collective>> under_way_;        // issued by all; may hold some that have ended
};

}  // namespace slipstream
