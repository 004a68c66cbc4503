// SPDX-License-Identifier: Apache-2.0
//
// Delayed: something is sent at the end of every `period`-th step, and its answer applied `delay` steps later. `offset`
// postpones the first sending by that many steps. A pure value; all ranks ask it with the same step number.
//
//   period 4, delay 2:   step 0 1 2 3 4 5 6 7 8 9 …
//                        sends       s       s
//                        applies         a       a
//
// With delay 0 a step sends and applies at once; with delay = period it applies the last answer, then sends again.
#pragma once

#include <cstdint>

namespace slipstream {

struct Delayed {
  std::int64_t period = 1;  // at least 1
  std::int64_t delay = 0;   // 0 … period: at most one message is in flight
  std::int64_t offset = 0;

  bool sends(std::int64_t t) const { return t >= offset && (t - offset + 1) % period == 0; }
  bool applies(std::int64_t t) const { return sends(t - delay); }

  // A copy with another period and delay, made after the answer to the sending of step `sent` was applied: the next
  // sending comes one new period after `sent` or, where that has passed, a whole number of periods after it.
  Delayed changed(std::int64_t sent, std::int64_t new_period, std::int64_t new_delay) const {
    return {new_period, new_delay, sent + 1};
  }
};

}  // namespace slipstream
