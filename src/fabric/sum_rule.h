// SPDX-License-Identifier: Apache-2.0
//
// Which way a sum travels, one rule for the real mesh and for simulated jobs: whole to everybody (one delay, P-1 times
// its bytes), or by a reduce-scatter and an all-gather of direct messages (two delays, 2 (P-1)/P of its bytes). A short
// one goes whole, and so does every sum of two ranks, for which both ways send as many bytes.
#pragma once

#include <cstddef>

namespace slipstream {

inline constexpr std::size_t kShortSumBytes = 64 << 10;  // what one rank sends in all, at most

// `bytes` is one rank's contribution as it is on the wire.
inline bool is_short_sum(double bytes, int ranks) { return bytes * (ranks - 1) <= static_cast<double>(kShortSumBytes); }
inline bool goes_whole(double bytes, int ranks) { return ranks == 2 || is_short_sum(bytes, ranks); }

}  // namespace slipstream
