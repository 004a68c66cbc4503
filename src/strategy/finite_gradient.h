// SPDX-License-Identifier: Apache-2.0
//
// require_finite: a gradient with an infinity or a NaN is refused, by its layer's name, before it is remembered or
// sent. Strategies with a memory need it: one bad value would stay in there, or spoil others, long after the step it
// came in.
#pragma once

#include <slipstream/strategy/strategy.h>

#include <cstddef>

namespace slipstream {

// Throws DivergedError if the gradient is not finite somewhere in [offset, offset + count).
void require_finite(const Step& s, std::size_t offset, std::size_t count);

}  // namespace slipstream
