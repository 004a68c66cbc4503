// SPDX-License-Identifier: Apache-2.0
//
// The job's secret. Every process that knows it is a member of the job; nothing else makes it one. A user writes it as
// text in a file only they can read, or the launcher draws one (random_key). Connections never carry it: members prove
// that they know it (wire/greeting.h) and derive their encryption keys from it (wire/channel.h).
//
// key_of() does not protect a short password against guessing: it takes what a user wrote as it is. Let a machine draw
// the secret. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace slipstream {

using Key = std::array<std::byte, 32>;

// From the system's source of randomness; throws Error if that fails.
Key random_key();

// The key for what a user wrote (HKDF-SHA256), without white space at the end. ConfigError below 16 characters.
Key key_of(std::string_view secret);

// HMAC-SHA256 of purpose | 0 | context. A key has several uses; a purpose for each keeps them apart. A purpose contains
// no zero byte.
Key derive(const Key& key, std::string_view purpose, std::span<const std::byte> context = {});

// Whether the bytes are equal, in a time that does not depend on where they differ.
bool same(std::span<const std::byte> a, std::span<const std::byte> b);

// The content of the file, for key_of(). ConfigError if it is missing, is larger than 4096 bytes, or others than its
// owner may read it.
std::string read_secret_file(const std::string& path);

// A key as 64 hexadecimal digits, and back; nothing if the text is not such a key.
std::string to_hex(const Key& key);
std::optional<Key> key_from_hex(std::string_view text);

}  // namespace slipstream
