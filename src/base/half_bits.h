// SPDX-License-Identifier: Apache-2.0
//
// One 16-bit float at a time: the definition that the vector code of vec_half.cc reproduces bit for bit. Rounds to
// nearest, ties to even; a NaN keeps its sign and upper bits and becomes quiet, as the x86 instructions do it.
#pragma once

#include <bit>
#include <cstdint>

namespace slipstream {

constexpr std::uint16_t fp16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U | (magnitude >> 13 & 0x3FFU));
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // 65520 and more: rounds to 2^16
  if (magnitude < 0x38800000U) {                                                    // below 2^-14: subnormal or zero
    // Adding 1/2 makes the float unit round at 2^-24, the spacing of the subnormals; what remains are their bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
  }
  magnitude -= 112U << 23;                       // the exponent's bias: 127 to 15
  magnitude += 0xFFFU + (magnitude >> 13 & 1U);  // to nearest even; a carry moves on into the exponent as it should
  return static_cast<std::uint16_t>(sign | magnitude >> 13);
}

constexpr float fp16_value(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = half >> 10 & 0x1FU;
  const std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0x1F) {
    const std::uint32_t quiet = mantissa != 0 ? 0x400000U : 0U;
    return std::bit_cast<float>(sign | 0x7F800000U | quiet | mantissa << 13);
  }
  if (exponent == 0) {  // mantissa * 2^-24, exact
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112U) << 23 | mantissa << 13);
}

constexpr std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

constexpr float bf16_value(std::uint16_t half) { return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16); }

}  // namespace slipstream
