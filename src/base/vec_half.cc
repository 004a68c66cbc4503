// SPDX-License-Identifier: Apache-2.0
//
// 16-bit floats in vectors. Highway's own conversions are used only where the processor has them (F16C): its emulation
// and its bf16 cut bits off instead of rounding.
#include <slipstream/base/error.h>

#include "base/half_bits.h"
#include "base/vec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/vec_half.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace slipstream::vec::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using DBits = hn::Rebind<std::uint16_t, D>;

// A format: vectors of 16-bit patterns to floats and back, and the same for one element.
struct Bf16 {
  static constexpr bool kVectors = true;
  static std::uint16_t bits(float x) { return bf16_bits(x); }
  static float value(std::uint16_t x) { return bf16_value(x); }

  static HWY_INLINE hn::Vec<DBits> bits(hn::Vec<D> x) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto u = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
    const auto rounded = hn::Add(u, hn::Add(odd, hn::Set(du, 0x7FFF)));
    const auto quiet = hn::Or(u, hn::Set(du, 0x400000));
    const auto kept = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded);
    return hn::DemoteTo(DBits(), hn::BitCast(di, hn::ShiftRight<16>(kept)));
  }
  static HWY_INLINE hn::Vec<D> value(hn::Vec<DBits> x) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(du, x)));
  }
};

struct Fp16 {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
  static constexpr bool kVectors = true;
#else
  static constexpr bool kVectors = false;  // processors from before 2012: one element at a time
#endif
  static std::uint16_t bits(float x) { return fp16_bits(x); }
  static float value(std::uint16_t x) { return fp16_value(x); }

  using DHalf = hn::Rebind<hwy::float16_t, D>;
  static HWY_INLINE hn::Vec<DBits> bits(hn::Vec<D> x) { return hn::BitCast(DBits(), hn::DemoteTo(DHalf(), x)); }
  static HWY_INLINE hn::Vec<D> value(hn::Vec<DBits> x) { return hn::PromoteTo(D(), hn::BitCast(DHalf(), x)); }
};

template <typename Format>
HWY_INLINE std::size_t vector_count(std::size_t count) {
  return Format::kVectors ? count / hn::Lanes(D()) * hn::Lanes(D()) : 0;
}

template <typename Format>
HWY_INLINE void encode(std::uint16_t* out, const float* x, std::size_t count) {
  std::size_t i = 0;
  for (; i < vector_count<Format>(count); i += hn::Lanes(D())) {
    hn::StoreU(Format::bits(hn::LoadU(D(), x + i)), DBits(), out + i);
  }
  for (; i < count; ++i) out[i] = Format::bits(x[i]);
}

template <typename Format>
HWY_INLINE void decode(float* out, const std::uint16_t* x, std::size_t count) {
  std::size_t i = 0;
  for (; i < vector_count<Format>(count); i += hn::Lanes(D())) {
    hn::StoreU(Format::value(hn::LoadU(DBits(), x + i)), D(), out + i);
  }
  for (; i < count; ++i) out[i] = Format::value(x[i]);
}

template <typename Format>
HWY_INLINE void decode_add(float* y, const std::uint16_t* x, float a, std::size_t count) {
  std::size_t i = 0;
  for (; i < vector_count<Format>(count); i += hn::Lanes(D())) {
    const auto scaled = hn::Mul(hn::Set(D(), a), Format::value(hn::LoadU(DBits(), x + i)));
    hn::StoreU(hn::Add(hn::LoadU(D(), y + i), scaled), D(), y + i);
  }
  for (; i < count; ++i) y[i] = y[i] + a * Format::value(x[i]);
}

void ToFp16(std::uint16_t* out, const float* x, std::size_t count) { encode<Fp16>(out, x, count); }
void ToBf16(std::uint16_t* out, const float* x, std::size_t count) { encode<Bf16>(out, x, count); }
void FromFp16(float* out, const std::uint16_t* x, std::size_t count) { decode<Fp16>(out, x, count); }
void FromBf16(float* out, const std::uint16_t* x, std::size_t count) { decode<Bf16>(out, x, count); }
void AddFp16(float* y, const std::uint16_t* x, float a, std::size_t count) { decode_add<Fp16>(y, x, a, count); }
void AddBf16(float* y, const std::uint16_t* x, float a, std::size_t count) { decode_add<Bf16>(y, x, a, count); }

}  // namespace slipstream::vec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::vec {

HWY_EXPORT(ToFp16);
HWY_EXPORT(ToBf16);
HWY_EXPORT(FromFp16);
HWY_EXPORT(FromBf16);
HWY_EXPORT(AddFp16);
HWY_EXPORT(AddBf16);

namespace {

void same_size(const char* operation, std::size_t a, std::size_t b) {
  check(a == b, "vec::{}: spans of {} and {} elements; they must be of one size", operation, a, b);
}

}  // namespace

void to_fp16(std::span<std::uint16_t> out, std::span<const float> x) {
  same_size("to_fp16", out.size(), x.size());
  HWY_DYNAMIC_DISPATCH(ToFp16)(out.data(), x.data(), x.size());
}

void to_bf16(std::span<std::uint16_t> out, std::span<const float> x) {
  same_size("to_bf16", out.size(), x.size());
  HWY_DYNAMIC_DISPATCH(ToBf16)(out.data(), x.data(), x.size());
}

void from_fp16(std::span<float> out, std::span<const std::uint16_t> x) {
  same_size("from_fp16", out.size(), x.size());
  HWY_DYNAMIC_DISPATCH(FromFp16)(out.data(), x.data(), x.size());
}

void from_bf16(std::span<float> out, std::span<const std::uint16_t> x) {
  same_size("from_bf16", out.size(), x.size());
  HWY_DYNAMIC_DISPATCH(FromBf16)(out.data(), x.data(), x.size());
}

void add_scaled_fp16(std::span<float> y, std::span<const std::uint16_t> x, float a) {
  same_size("add_scaled_fp16", y.size(), x.size());
  HWY_DYNAMIC_DISPATCH(AddFp16)(y.data(), x.data(), a, x.size());
}

void add_scaled_bf16(std::span<float> y, std::span<const std::uint16_t> x, float a) {
  same_size("add_scaled_bf16", y.size(), x.size());
  HWY_DYNAMIC_DISPATCH(AddBf16)(y.data(), x.data(), a, x.size());
}

}  // namespace slipstream::vec
#endif  // HWY_ONCE
