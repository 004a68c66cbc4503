// SPDX-License-Identifier: Apache-2.0
#include <slipstream/base/clock.h>

#include <chrono>

namespace slipstream {

double SteadyClock::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace slipstream
