// SPDX-License-Identifier: Apache-2.0
//
// The optimizer's memory of where it was going: the velocity of sgd, the first moment of adam and adamw. Empty where
// there is none (sgd without momentum). Adam's second moment is a size, not a direction, and is not part of it.
#pragma once

#include <slipstream/optim/optimizer.h>

namespace slipstream {

inline std::span<float> momentum_of(Optimizer& optimizer) {
  struct Finder final : StateVisitor {
    std::span<float> found;
    void floats(std::string_view name, std::span<float> values) override {
      if (name == "velocity" || name == "moment1") found = values;
    }
    void integer(std::string_view, std::int64_t&) override {}
  } finder;
  optimizer.visit(finder);
  return finder.found;
}

}  // namespace slipstream
