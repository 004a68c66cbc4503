// SPDX-License-Identifier: Apache-2.0
#include "fabric/wire.h"

#include <algorithm>
#include <array>

#include "base/vec.h"

namespace slipstream {

void wire_encode(Wire wire, std::span<const float> values, std::span<std::uint16_t> out) {
  wire == Wire::kFp16 ? vec::to_fp16(out, values) : vec::to_bf16(out, values);
}

void wire_decode(Wire wire, std::span<const std::uint16_t> payload, std::span<float> out) {
  wire == Wire::kFp16 ? vec::from_fp16(out, payload) : vec::from_bf16(out, payload);
}

void wire_add(Wire wire, std::span<const std::uint16_t> payload, std::span<float> out) {
  wire == Wire::kFp16 ? vec::add_scaled_fp16(out, payload, 1.0F) : vec::add_scaled_bf16(out, payload, 1.0F);
}

void wire_round(Wire wire, std::span<float> values) {
  if (wire == Wire::kFp32) return;
  std::array<std::uint16_t, 1024> rounded;
  for (std::size_t at = 0; at < values.size(); at += rounded.size()) {
    const auto piece = values.subspan(at, std::min(rounded.size(), values.size() - at));
    const auto bits = std::span(rounded).first(piece.size());
    wire_encode(wire, piece, bits);
    wire_decode(wire, bits, piece);
  }
}

}  // namespace slipstream
