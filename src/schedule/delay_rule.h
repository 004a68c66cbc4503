// SPDX-License-Identifier: Apache-2.0
//
// DelayRule: how often to average and how late to merge, where the user leaves one or both open. A pure function of the
// steps an average takes: ranks that agree on these agree on the choice.
//
//   delay    the shortest that hides an average, at most the period where that is given. A late average costs accuracy,
//            every step of it
//   period   twice the delay, and at least 4. A rare average costs little accuracy, much less than a late one, so the
//            wire is left free for half of the time: an average that takes longer for once then delays nothing
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace slipstream {

struct DelayRule {
  std::optional<std::int64_t> period, delay;  // empty: chosen

  struct Choice {
    std::int64_t period = 0, delay = 0;
    std::int64_t needed = 0;  // the delay that would hide an average; more than `delay`: steps wait
  };

  // Does the choice depend on measurements? A period that is left open follows the delay.
  bool measures() const { return !delay; }

  // For an average that takes so many steps. 0: not known yet; then the delay is 1, because waiting for the first
  // averages costs some time once, and late ones at the start of a training cost accuracy.
  Choice choose(double steps) const {
    constexpr std::int64_t kShortestPeriod = 4;
    constexpr double kNoise = 0.05;  // of a step: what is late by less is not worth a step of staleness
    const auto needed = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(steps - kNoise)));
    const std::int64_t chosen = delay.value_or(std::min(needed, period.value_or(needed)));
    return {period.value_or(std::max(kShortestPeriod, 2 * chosen)), chosen, needed};
  }
};

}  // namespace slipstream
