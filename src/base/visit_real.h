// SPDX-License-Identifier: Apache-2.0
//
// A double as a piece of state (slipstream/base/state.h), by its bits.
#pragma once

#include <slipstream/base/state.h>

#include <bit>

namespace slipstream {

inline void visit_real(StateVisitor& v, std::string_view name, double& value) {
  auto bits = std::bit_cast<std::int64_t>(value);
  v.integer(name, bits);
  value = std::bit_cast<double>(bits);
}

}  // namespace slipstream
