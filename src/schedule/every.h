// SPDX-License-Identifier: Apache-2.0
//
// Every: something happens at the end of every `period`-th step: with period 4 after steps 3, 7, 11, … A pure value;
// all ranks ask it with the same step number and get the same answer.
#pragma once

#include <cstdint>

namespace slipstream {

struct Every {
  std::int64_t period = 1;  // at least 1

  bool sends(std::int64_t t) const { return (t + 1) % period == 0; }
};

}  // namespace slipstream
