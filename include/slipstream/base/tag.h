// SPDX-License-Identifier: Apache-2.0
//
// Tag: what a message is about. A tag with kBackground set uses the background lane, which all other messages overtake.
#pragma once

#include <cstdint>

namespace slipstream {

using Tag = std::uint32_t;
inline constexpr Tag kUrgent = 0, kBackground = Tag{1} << 31;

inline int lane_of(Tag tag) { return (tag & kBackground) != 0 ? 1 : 0; }

}  // namespace slipstream
