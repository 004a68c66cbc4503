// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <xxhash.h>

namespace slipstream {

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace slipstream
