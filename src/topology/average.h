// SPDX-License-Identifier: Apache-2.0
//
// The blocking mean over all ranks; bit-identical on all of them. If it fails, the values are unchanged; a sum in place
// would leave partial sums.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <vector>

#include "base/vec.h"

namespace slipstream {

inline void average(Fabric& net, std::span<float> values) {
  std::vector<float> mean(values.begin(), values.end());
  net.sum(mean).wait();
  vec::scale(mean, 1.0F / static_cast<float>(net.size()));
  vec::copy(values, std::span<const float>(mean));
}

}  // namespace slipstream
