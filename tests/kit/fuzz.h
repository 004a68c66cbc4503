// SPDX-License-Identifier: Apache-2.0
//
// How many seeds a test over random inputs tries: as many as it says, times SLIPSTREAM_FUZZ_SEEDS where that is set.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace slipstream::test {

inline std::uint64_t fuzz_seeds(std::uint64_t usual) {
  const char* times = std::getenv("SLIPSTREAM_FUZZ_SEEDS");
  const std::uint64_t factor = times == nullptr ? 1 : std::strtoull(times, nullptr, 10);
  return usual * (factor == 0 ? 1 : factor);
}

}  // namespace slipstream::test
