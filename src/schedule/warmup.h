// SPDX-License-Identifier: Apache-2.0
//
// Warmup: the first `steps` steps of a job, steps 0 … steps-1. The one place where a step number is compared with the
// length of a warm-up. A pure value.
#pragma once

#include <cstdint>

namespace slipstream {

struct Warmup {
  std::int64_t steps = 0;

  bool active(std::int64_t t) const { return t < steps; }

  // The share of the warm-up that is done at step t: 1/steps in the first step, 1 in the last step and ever after.
  double fraction(std::int64_t t) const {
    return active(t) ? static_cast<double>(t + 1) / static_cast<double>(steps) : 1.0;
  }
};

}  // namespace slipstream
