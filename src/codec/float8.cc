// SPDX-License-Identifier: Apache-2.0
#include "codec/float8.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/vec.h"

namespace slipstream {
namespace {

constexpr std::size_t kChunk = 1024;
constexpr float kLeast = 1e-30F;  // lower limit of a list's largest value: with a smaller one 1 / factor would overflow

}  // namespace

// A byte is the upper half of the value as fp16, whose largest finite number is just below 2^16. Values are scaled
// below 2^15, so that rounding up stays finite.
void float8_encode(std::span<const float> values, std::span<std::byte> record) {
  check(record.size() == float8_bytes(values.size()), "float8: {} bytes for {} values", record.size(), values.size());
  float largest = kLeast;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const int shift = 14 - std::ilogb(largest);
  const float factor = std::ldexp(1.0F, -shift), inverse = std::ldexp(1.0F, shift);
  std::memcpy(record.data(), &factor, sizeof factor);
  std::fill(record.begin() + 4, record.end(), std::byte{0});
  std::array<float, kChunk> scaled;
  std::array<std::uint16_t, kChunk> halves;
  for (std::size_t at = 0; at < values.size(); at += kChunk) {
    const std::size_t count = std::min(kChunk, values.size() - at);
    for (std::size_t j = 0; j < count; ++j) scaled[j] = inverse * values[at + j];
    vec::to_fp16(std::span(halves).first(count), std::span(scaled).first(count));
    for (std::size_t j = 0; j < count; ++j) {
      const unsigned bits = halves[j];
      record[4 + at + j] = static_cast<std::byte>((bits + 0x7F + (bits >> 8 & 1)) >> 8);
    }
  }
}

void float8_decode(std::span<const std::byte> record, std::span<float> values) {
  check(record.size() == float8_bytes(values.size()), "float8: {} bytes for {} values", record.size(), values.size());
  float factor = 0;
  std::memcpy(&factor, record.data(), sizeof factor);
  std::array<std::uint16_t, kChunk> halves;
  for (std::size_t at = 0; at < values.size(); at += kChunk) {
    const std::size_t count = std::min(kChunk, values.size() - at);
    for (std::size_t j = 0; j < count; ++j) {
      halves[j] = static_cast<std::uint16_t>(static_cast<unsigned>(record[4 + at + j]) << 8);
    }
    vec::from_fp16(values.subspan(at, count), std::span(halves).first(count));
    vec::scale(values.subspan(at, count), factor);
  }
}

}  // namespace slipstream
