// SPDX-License-Identifier: Apache-2.0
//
// A 64-bit hash of bytes (XXH3): equal on every machine of one byte order, fast as memory. It tells whether replicas
// agree; it is no defence against someone who wants a collision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace slipstream {

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);

// The same hash, of bytes that come piece by piece.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace slipstream
