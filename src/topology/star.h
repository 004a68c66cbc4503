// SPDX-License-Identifier: Apache-2.0
//
// Star: rank 0 as a server in the middle, for comparison with topologies without one. All traffic passes its wire, so
// the time of a step grows with the number of ranks. Blocking; all ranks call these in the same order, with the same
// sizes.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstddef>
#include <span>
#include <vector>

namespace slipstream {

class Star {
 public:
  // On rank 0: values = sum over ranks, added in rank order. Elsewhere `values` stay as they are.
  void sum_at_server(Fabric& net, std::span<float> values);

  // Copies rank 0's bytes to all ranks.
  static void broadcast(Fabric& net, std::span<std::byte> bytes);

 private:
  std::vector<float> arrived_;  // scratch: what the others sent
};

}  // namespace slipstream
