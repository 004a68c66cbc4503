// SPDX-License-Identifier: Apache-2.0
//
// One step of plain synchronous SGD, as strategies take them while they warm up: blocking, the whole model at once.
#pragma once

#include <slipstream/strategy/strategy.h>

namespace slipstream {

inline void synchronous_step(Step& s) {
  s.net.sum(s.model.grads()).wait();
  s.opt.step(s.model.weights(), s.model.grads(), 1.0F / static_cast<float>(s.net.size()));
}

}  // namespace slipstream
