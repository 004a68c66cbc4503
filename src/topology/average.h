// SPDX-License-Identifier: Apache-2.0
//
// The blocking mean over all ranks, in place; bit-identical on all of them.
#pragma once

#include <slipstream/fabric/fabric.h>

#include "base/vec.h"

namespace slipstream {

inline void average(Fabric& net, std::span<float> values) {
  net.sum(values).wait();
  vec::scale(values, 1.0F / static_cast<float>(net.size()));
}

}  // namespace slipstream
