// SPDX-License-Identifier: Apache-2.0
//
// The job's secret. Whoever knows it is a member of the job; nothing else makes one a member. A user writes it as text
// in a file only they can read, or the launcher draws one (random_key). Connections never carry it: members prove that
// they know it (wire/greeting.h) and derive from it what they encrypt with (wire/channel.h).
//
// key_of() is no defence against guessing a short password: it takes what a user wrote as it is. Let a machine draw it.
// Pure functions; any thread.
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

// The key of what a user wrote (HKDF-SHA256), without the white space at its end. ConfigError below 16 characters.
Key key_of(std::string_view secret);

// HMAC-SHA256 of purpose | 0 | context. A key is used for several things; one purpose each keeps them apart.
// A purpose has no zero byte in it.
Key derive(const Key& key, std::string_view purpose, std::span<const std::byte> context = {});

// Whether the bytes are equal, in a time that does not depend on where they differ.
bool same(std::span<const std::byte> a, std::span<const std::byte> b);

// What is in the file, for key_of(). ConfigError where it is missing, is larger than 4096 bytes, or may be read by
// others than its owner.
std::string read_secret_file(const std::string& path);

// A key as 64 hexadecimal digits, and back; nothing where the text is no such key.
std::string to_hex(const Key& key);
std::optional<Key> key_from_hex(std::string_view text);

}  // namespace slipstream
