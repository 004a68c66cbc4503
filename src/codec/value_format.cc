// SPDX-License-Identifier: Apache-2.0
#include "codec/value_format.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/vec.h"

namespace slipstream {
namespace {

// Where a list's int8 values begin, after its scales.
std::size_t levels_at(std::size_t count) { return sizeof(float) * ((count + kValueBlock - 1) / kValueBlock); }

// Limits a value to the largest number of a 16-bit format, so that it becomes no infinity; the sender owes the rest. A
// NaN stays one.
float within(float value, ValueFormat format) {
  const float largest = format == ValueFormat::kFp16 ? 65504.0F : 0x1.FEp127F;
  return value > largest ? largest : value < -largest ? -largest : value;
}

// A block of int8: each value is a whole number from -127 to 127, times the scale. If one value is not finite, the
// scale is a NaN, and so is every value read back.
struct Int8Block {
  float scale = 0;
  std::array<std::int8_t, kValueBlock> levels;
};

Int8Block to_int8(std::span<const float> values) {
  constexpr float kLevels = 127.0F;
  Int8Block block;
  std::uint32_t largest = 0;
  for (const float x : values) largest = std::max(largest, std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU);
  block.scale = largest < 0x7F800000U ? std::bit_cast<float>(largest) / kLevels : std::nanf("");
  const bool usable = block.scale > 0.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {  // the limit, because the scale of denormals is not exact
    const float level = usable ? std::clamp(values[i] / block.scale, -kLevels, kLevels) : 0.0F;
    block.levels[i] = static_cast<std::int8_t>(std::lrint(level));
  }
  return block;
}

// Writes one block, `values`, to its place in a list of `count` values; `first` is the index of its first value.
void write_block(std::span<const float> values, ValueFormat format, std::size_t first, std::size_t count,
                 std::byte* out) {
  std::array<std::uint16_t, kValueBlock> halves;
  std::array<float, kValueBlock> limited;
  const auto to = std::span(halves).first(values.size());
  switch (format) {
    case ValueFormat::kFp32:
      std::memcpy(out + 4 * first, values.data(), values.size_bytes());
      return;
    case ValueFormat::kInt8: {
      const Int8Block block = to_int8(values);
      std::memcpy(out + sizeof(float) * (first / kValueBlock), &block.scale, sizeof(float));
      std::memcpy(out + levels_at(count) + first, block.levels.data(), values.size());
      return;
    }
    case ValueFormat::kFp16:
    case ValueFormat::kBf16:
      std::transform(values.begin(), values.end(), limited.begin(), [=](float x) { return within(x, format); });
      const auto from = std::span(limited).first(values.size());
      format == ValueFormat::kFp16 ? vec::to_fp16(to, from) : vec::to_bf16(to, from);
      std::memcpy(out + 2 * first, to.data(), to.size_bytes());
  }
}

}  // namespace

ValueFormat parse_value_format(std::string_view name) {
  if (name == "fp32") return ValueFormat::kFp32;
  if (name == "fp16") return ValueFormat::kFp16;
  if (name == "bf16") return ValueFormat::kBf16;
  if (name == "int8") return ValueFormat::kInt8;
  fail<ConfigError>("unknown number format '{}'; there are fp32, fp16, bf16 and int8", name);
}

std::size_t values_bytes(std::size_t count, ValueFormat format) {
  if (format == ValueFormat::kInt8) return levels_at(count) + count;
  return count * (format == ValueFormat::kFp32 ? 4 : 2);
}

void write_values(std::span<const float> values, ValueFormat format, std::byte* out) {
  for (std::size_t i = 0; i < values.size(); i += kValueBlock) {
    write_block(values.subspan(i, std::min(kValueBlock, values.size() - i)), format, i, values.size(), out);
  }
}

void read_value_block(const std::byte* bytes, ValueFormat format, std::size_t first, std::size_t count,
                      std::span<float> values) {
  std::array<std::uint16_t, kValueBlock> halves;
  const auto from = std::span(halves).first(values.size());
  switch (format) {
    case ValueFormat::kFp32:
      std::memcpy(values.data(), bytes + 4 * first, values.size_bytes());
      return;
    case ValueFormat::kInt8: {
      Int8Block block;
      std::memcpy(&block.scale, bytes + sizeof(float) * (first / kValueBlock), sizeof(float));
      std::memcpy(block.levels.data(), bytes + levels_at(count) + first, values.size());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = block.scale * static_cast<float>(block.levels[i]);
      return;
    }
    case ValueFormat::kFp16:
    case ValueFormat::kBf16:
      std::memcpy(halves.data(), bytes + 2 * first, from.size_bytes());
      format == ValueFormat::kFp16 ? vec::from_fp16(values, from) : vec::from_bf16(values, from);
  }
}

void read_values(const std::byte* bytes, ValueFormat format, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); i += kValueBlock) {
    read_value_block(bytes, format, i, values.size(), values.subspan(i, std::min(kValueBlock, values.size() - i)));
  }
}

void round_as_sent(std::span<float> values, ValueFormat format) {
  if (format == ValueFormat::kFp32) return;
  std::array<std::byte, kValueBlock * sizeof(float)> bytes;
  for (std::size_t i = 0; i < values.size(); i += kValueBlock) {
    const auto block = values.subspan(i, std::min(kValueBlock, values.size() - i));
    write_block(block, format, 0, block.size(), bytes.data());
    read_value_block(bytes.data(), format, 0, block.size(), block);
  }
}

}  // namespace slipstream
