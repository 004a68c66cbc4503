// SPDX-License-Identifier: Apache-2.0
//
// How a sum travels, one rule for the real mesh and for simulated jobs: whole to everybody (one delay, P-1 times its
// bytes), or by a reduce-scatter and an all-gather of direct messages (two delays, 2 (P-1)/P of its bytes). Short sums
// go whole, and so do all sums of two ranks, for which both ways send the same number of bytes.
#pragma once

#include <cstddef>

namespace slipstream {

inline constexpr std::size_t kShortSumBytes = 64 << 10;  // most that one rank sends in all

// `bytes`: one rank's contribution as it is on the wire.
inline bool is_short_sum(double bytes, int ranks) { return bytes * (ranks - 1) <= static_cast<double>(kShortSumBytes); }
inline bool goes_whole(double bytes, int ranks) { return ranks == 2 || is_short_sum(bytes, ranks); }

}  // namespace slipstream
