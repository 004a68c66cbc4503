// SPDX-License-Identifier: Apache-2.0
//
// EDGE 2, the second place that uses torch: dense sums by libtorch's c10d, over Gloo or by a process group that the
// program has made; and the store that torchrun holds for its workers. No torch in this header.
#pragma once

#include <memory>

#include "fabric/mesh_fabric.h"

namespace slipstream {

// The fabric of this process: joins its job, through torchrun's store if there is one, and uses the engine for dense
// sums that at.sums names. Throws what MeshFabric does.
std::unique_ptr<MeshFabric> join_fabric(const Rendezvous& at);

// c10d's engine, over connections of its own that the ranks arrange through the mesh. Its send and recv block; they are
// only for comparisons with ours.
class C10dEngine : public DenseSums {
 public:
  virtual void send(int to, std::span<const std::byte> bytes) = 0;
  virtual void recv(int from, std::span<std::byte> bytes) = 0;
};
bool c10d_sums_are_built();  // if not, torch came without headers of Gloo, and the next function throws ConfigError
std::unique_ptr<C10dEngine> make_c10d_sums(MeshFabric& net);  // all workers call it

}  // namespace slipstream
