// SPDX-License-Identifier: Apache-2.0
//
// ProcessUsage: how many threads this process has, and how often they gave up the processor to wait for something, as
// the kernel counts it. 0 where it cannot be read.
#pragma once

#include <cstdint>

namespace slipstream {

struct ProcessUsage {
  std::int64_t threads = 0;
  std::int64_t voluntary_switches = 0;  // since the process began, of all its threads

  static ProcessUsage now();
};

}  // namespace slipstream
