// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <xxhash.h>

namespace slipstream {

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

struct Hasher::State {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> xxh{XXH3_createState(), &XXH3_freeState};
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_64bits_reset(state_->xxh.get()); }
Hasher::~Hasher() = default;
void Hasher::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_64bits_update(state_->xxh.get(), bytes.data(), bytes.size());
}
std::uint64_t Hasher::value() const { return XXH3_64bits_digest(state_->xxh.get()); }

}  // namespace slipstream
