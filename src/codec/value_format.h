// SPDX-License-Identifier: Apache-2.0
//
// value_format: a list of floats as bytes on the wire, in one of four formats. Formats shorter than fp32 round values;
// values too large for 16 bits become the largest number there, never an infinity. A sender with error feedback owes
// the difference to what round_as_sent() makes of its values.
//
//   fp32, fp16, bf16   4, 2, 2 bytes a value
//   int8               a scale (4 bytes) for every 256 values, then a byte for each: whole numbers from -127 to 127
//
// Rounding is the same on every machine. Bytes need no alignment.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace slipstream {

enum class ValueFormat : std::uint8_t { kFp32 = 0, kFp16 = 1, kBf16 = 2, kInt8 = 3 };
ValueFormat parse_value_format(std::string_view name);  // "fp32", "fp16", "bf16", "int8"

inline constexpr std::size_t kValueBlock =
    256;  // values are converted this many at a time; with int8 they share a scale

std::size_t values_bytes(std::size_t count, ValueFormat format);

// `out` has values_bytes(values.size(), format) bytes.
void write_values(std::span<const float> values, ValueFormat format, std::byte* out);
void read_values(const std::byte* bytes, ValueFormat format, std::span<float> values);

// Rounds all values of a list to what its receivers will read.
void round_as_sent(std::span<float> values, ValueFormat format);

// Reads the values from `first` on, where a block begins, of a list of `count` values: at most one block.
void read_value_block(const std::byte* bytes, ValueFormat format, std::size_t first, std::size_t count,
                      std::span<float> values);

// Calls use(first, values) for blocks of a list, in order.
template <typename Use>
void each_value_block(const std::byte* bytes, std::size_t count, ValueFormat format, const Use& use) {
  std::array<float, kValueBlock> floats;
  for (std::size_t i = 0; i < count; i += kValueBlock) {
    const auto values = std::span(floats).first(std::min(kValueBlock, count - i));
    read_value_block(bytes, format, i, count, values);
    use(i, std::span<const float>(values));
  }
}

}  // namespace slipstream
