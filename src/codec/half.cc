// SPDX-License-Identifier: Apache-2.0
#include "codec/half.h"

#include <slipstream/base/error.h>

#include "base/vec.h"

namespace slipstream {

HalfKind parse_half_kind(std::string_view name) {
  if (name == "fp16") return HalfKind::kFp16;
  if (name == "bf16") return HalfKind::kBf16;
  fail<ConfigError>("there is no 16-bit float '{}'; choose fp16 (finer) or bf16 (wider range)", name);
}

std::string_view half_name(HalfKind kind) { return kind == HalfKind::kFp16 ? "fp16" : "bf16"; }

void half_encode(HalfKind kind, std::span<const float> values, std::span<std::uint16_t> out) {
  kind == HalfKind::kFp16 ? vec::to_fp16(out, values) : vec::to_bf16(out, values);
}

void half_decode(HalfKind kind, std::span<const std::uint16_t> payload, std::span<float> out) {
  kind == HalfKind::kFp16 ? vec::from_fp16(out, payload) : vec::from_bf16(out, payload);
}

void half_add(HalfKind kind, std::span<const std::uint16_t> payload, std::span<float> out, float scale) {
  kind == HalfKind::kFp16 ? vec::add_scaled_fp16(out, payload, scale) : vec::add_scaled_bf16(out, payload, scale);
}

}  // namespace slipstream
