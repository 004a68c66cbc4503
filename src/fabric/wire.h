// SPDX-License-Identifier: Apache-2.0
//
// The 16-bit wire formats. fp16 has 11 significant bits but only reaches from 6e-8 to 65504 (beyond: infinity); bf16
// has the range of a float and 8 significant bits. Rounding is to nearest even and the same on every machine. Received
// values are added as floats, never as 16-bit numbers.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace slipstream {

// In these functions `wire` is kFp16 or kBf16.
void wire_encode(Wire wire, std::span<const float> values, std::span<std::uint16_t> out);
void wire_decode(Wire wire, std::span<const std::uint16_t> payload, std::span<float> out);
void wire_add(Wire wire, std::span<const std::uint16_t> payload, std::span<float> out);  // out = out + payload

// Rounds values to what they are after the wire; fp32 leaves them as they are.
void wire_round(Wire wire, std::span<float> values);
// Bytes of a value on the wire.
inline std::size_t wire_width(Wire wire) { return wire == Wire::kFp32 ? sizeof(float) : sizeof(std::uint16_t); }

}  // namespace slipstream
