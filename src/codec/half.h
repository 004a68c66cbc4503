// SPDX-License-Identifier: Apache-2.0
//
// half: floats as 16-bit floats, half the bytes on the wire. fp16 has 11 significant bits but only reaches from 6e-8 to
// 65504 (beyond: infinity); bf16 has the range of a float and 8 significant bits. Rounding is to nearest even and the
// same on every machine. Payloads are added by their floats, never as 16-bit numbers; nothing here remembers what
// rounding took away (that is error feedback's part).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace slipstream {

enum class HalfKind { kFp16, kBf16 };

HalfKind parse_half_kind(std::string_view name);  // "fp16", "bf16"; else ConfigError
std::string_view half_name(HalfKind kind);

void half_encode(HalfKind kind, std::span<const float> values, std::span<std::uint16_t> out);
void half_decode(HalfKind kind, std::span<const std::uint16_t> payload, std::span<float> out);

// out = out + scale * payload, in one pass.
void half_add(HalfKind kind, std::span<const std::uint16_t> payload, std::span<float> out, float scale = 1.0F);

}  // namespace slipstream
