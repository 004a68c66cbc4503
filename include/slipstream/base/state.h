// SPDX-License-Identifier: Apache-2.0
//
// StateVisitor: how optimizers, strategies and corrections name every piece of state they own. One `visit` method
// serves saving, restoring, printing and testing. A visitor may write to what it is given; sizes never change in a
// visit. Names are unique inside one object; owners prefix them ("optim/velocity").
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace slipstream {

class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  virtual void floats(std::string_view name, std::span<float> values) = 0;
  virtual void integer(std::string_view name, std::int64_t& value) = 0;
};

}  // namespace slipstream
