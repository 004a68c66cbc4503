// SPDX-License-Identifier: Apache-2.0
//
// DelayRule: how often to average and how late to merge, where the user leaves one or both open. A pure function of the
// steps an average takes: ranks that agree on these agree on the choice.
//
//   delay    the shortest that hides an average, at most the period where that is given. Every step of delay costs
//            accuracy
//   period   twice the delay, and at least 4. Rare averages cost much less accuracy than late ones, so the wire is left
//            free for half of the time: an average that for once takes longer then delays nothing
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace slipstream {

struct DelayRule {
  std::optional<std::int64_t> period, delay;  // empty: chosen by this rule

  struct Choice {
    std::int64_t period = 0, delay = 0;
    std::int64_t needed = 0;  // the delay that would hide an average; more than `delay`: steps wait
  };

  // Does the choice depend on measurements? An open period follows from the delay.
  bool measures() const { return !delay; }

  // The choice for an average that takes `steps` steps; 0: not known yet. Then the delay is 1, because waiting for the
  // first averages costs a little time once, whereas late ones at the start of a training cost accuracy.
  Choice choose(double steps) const {
    constexpr std::int64_t kShortestPeriod = 4;
    constexpr double kNoise = 0.05;  // of a step: a shorter wait is not worth a step of staleness
    const auto needed = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(steps - kNoise)));
    const std::int64_t chosen = delay.value_or(std::min(needed, period.value_or(needed)));
    return {period.value_or(std::max(kShortestPeriod, 2 * chosen)), chosen, needed};
  }
};

}  // namespace slipstream
