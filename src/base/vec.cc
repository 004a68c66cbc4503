// SPDX-License-Identifier: Apache-2.0
#include "base/vec.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/vec.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "base/vec_loop-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace slipstream::vec::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Scale(float* y, float a, std::size_t count) {
  each(count,
       [=](auto d, std::size_t i) HWY_ATTR { hn::StoreU(hn::Mul(hn::Set(d, a), hn::LoadU(d, y + i)), d, y + i); });
}

void Add(float* y, const float* x, std::size_t count) {
  each(count, [=](auto d, std::size_t i)
                  HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, y + i); });
}

void AddScaled(float* y, const float* x, float a, std::size_t count) {
  each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto scaled = hn::Mul(hn::Set(d, a), hn::LoadU(d, x + i));
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), scaled), d, y + i);
  });
}

void Mix(float* y, float a, const float* x, float b, std::size_t count) {
  each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto kept = hn::Mul(hn::Set(d, a), hn::LoadU(d, y + i));
    hn::StoreU(hn::Add(kept, hn::Mul(hn::Set(d, b), hn::LoadU(d, x + i))), d, y + i);
  });
}

void CopyTwice(float* y, float* z, const float* x, std::size_t count) {
  each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto value = hn::LoadU(d, x + i);
    hn::StoreU(value, d, y + i);
    hn::StoreU(value, d, z + i);
  });
}

void Rebase(float* y, const float* from, const float* to, float a, std::size_t count) {
  each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto moved = hn::Sub(hn::LoadU(d, y + i), hn::LoadU(d, from + i));
    hn::StoreU(hn::Add(moved, hn::Mul(hn::Set(d, a), hn::LoadU(d, to + i))), d, y + i);
  });
}

void Subtract(float* out, const float* a, const float* b, std::size_t count) {
  each(count, [=](auto d, std::size_t i)
                  HWY_ATTR { hn::StoreU(hn::Sub(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i); });
}

// The sum of the products, or of their absolute values.
template <bool kAbsolute>
HWY_INLINE double SumProducts(const float* a, const float* b, std::size_t count) {
  constexpr std::size_t kSums = 16;
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> narrow;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  hn::Vec<decltype(d)> wide[kSums / kLanes];
  for (auto& sum : wide) sum = hn::Zero(d);
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::size_t k = 0; k < kSums / kLanes; ++k) {
      const auto left = hn::PromoteTo(d, hn::LoadU(narrow, a + i + k * kLanes));
      const auto right = hn::PromoteTo(d, hn::LoadU(narrow, b + i + k * kLanes));
      const auto product = hn::Mul(left, right);
      wide[k] = hn::Add(wide[k], kAbsolute ? hn::Abs(product) : product);
    }
  }
  double sums[kSums];
  for (std::size_t k = 0; k < kSums / kLanes; ++k) hn::StoreU(wide[k], d, sums + k * kLanes);
  for (; i < count; ++i) {
    const double product = static_cast<double>(a[i]) * static_cast<double>(b[i]);
    sums[i % kSums] += kAbsolute ? std::abs(product) : product;
  }
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

double Dot(const float* a, const float* b, std::size_t count) { return SumProducts<false>(a, b, count); }
double SumAbsProducts(const float* a, const float* b, std::size_t count) { return SumProducts<true>(a, b, count); }

// An infinity or NaN has all exponent bits set, so the largest magnitude, compared as an integer, shows whether there
// is one. Testing once per block keeps the branch out of the inner loop; a hit is located by scanning its block again.
std::size_t FirstNonfinite(const float* x, std::size_t count) {
  constexpr std::size_t kBlock = 1024;
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const std::size_t lanes = hn::Lanes(d);
  const auto infinity = hn::Set(di, 0x7F800000);
  const auto magnitude = hn::Set(di, 0x7FFFFFFF);
  std::size_t block = 0;
  for (; block + kBlock <= count; block += kBlock) {
    auto largest = hn::Zero(di);
    for (std::size_t i = 0; i < kBlock; i += lanes) {
      largest = hn::Max(largest, hn::And(hn::BitCast(di, hn::LoadU(d, x + block + i)), magnitude));
    }
    if (!hn::AllTrue(di, hn::Lt(largest, infinity))) break;
  }
  while (block < count && std::isfinite(x[block])) ++block;
  return block;
}

}  // namespace slipstream::vec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::vec {

HWY_EXPORT(Scale);
HWY_EXPORT(Add);
HWY_EXPORT(AddScaled);
HWY_EXPORT(Mix);
HWY_EXPORT(CopyTwice);
HWY_EXPORT(Rebase);
HWY_EXPORT(Subtract);
HWY_EXPORT(Dot);
HWY_EXPORT(SumAbsProducts);
HWY_EXPORT(FirstNonfinite);

namespace {

void same_size(const char* operation, std::size_t a, std::size_t b) {
  check(a == b, "vec::{}: spans of {} and {} elements; they must be of one size", operation, a, b);
}

}  // namespace

void fill(std::span<float> y, float value) { std::fill(y.begin(), y.end(), value); }

void zero(std::span<float> y) { fill(y, 0.0F); }

void copy(std::span<float> y, std::span<const float> x) {
  same_size("copy", y.size(), x.size());
  if (!x.empty()) std::memmove(y.data(), x.data(), x.size_bytes());
}

void scale(std::span<float> y, float a) { HWY_DYNAMIC_DISPATCH(Scale)(y.data(), a, y.size()); }

void add(std::span<float> y, std::span<const float> x) {
  same_size("add", y.size(), x.size());
  HWY_DYNAMIC_DISPATCH(Add)(y.data(), x.data(), y.size());
}

void add_scaled(std::span<float> y, std::span<const float> x, float a) {
  same_size("add_scaled", y.size(), x.size());
  HWY_DYNAMIC_DISPATCH(AddScaled)(y.data(), x.data(), a, y.size());
}

void lerp(std::span<float> y, std::span<const float> x, float a) {
  same_size("lerp", y.size(), x.size());
  HWY_DYNAMIC_DISPATCH(Mix)(y.data(), a, x.data(), 1.0F - a, y.size());
}

void mix(std::span<float> y, float a, std::span<const float> x, float b) {
  same_size("mix", y.size(), x.size());
  HWY_DYNAMIC_DISPATCH(Mix)(y.data(), a, x.data(), b, y.size());
}

void copy_twice(std::span<float> y, std::span<float> z, std::span<const float> x) {
  same_size("copy_twice", y.size(), x.size());
  same_size("copy_twice", z.size(), x.size());
  HWY_DYNAMIC_DISPATCH(CopyTwice)(y.data(), z.data(), x.data(), x.size());
}

void rebase(std::span<float> y, std::span<const float> from, std::span<const float> to, float a) {
  same_size("rebase", y.size(), from.size());
  same_size("rebase", y.size(), to.size());
  HWY_DYNAMIC_DISPATCH(Rebase)(y.data(), from.data(), to.data(), a, y.size());
}

void subtract(std::span<float> out, std::span<const float> a, std::span<const float> b) {
  same_size("subtract", out.size(), a.size());
  same_size("subtract", out.size(), b.size());
  HWY_DYNAMIC_DISPATCH(Subtract)(out.data(), a.data(), b.data(), out.size());
}

double dot(std::span<const float> a, std::span<const float> b) {
  same_size("dot", a.size(), b.size());
  return HWY_DYNAMIC_DISPATCH(Dot)(a.data(), b.data(), a.size());
}

double sum_of_squares(std::span<const float> x) { return dot(x, x); }

double sum_abs_products(std::span<const float> x, std::span<const float> y) {
  same_size("sum_abs_products", x.size(), y.size());
  return HWY_DYNAMIC_DISPATCH(SumAbsProducts)(x.data(), y.data(), x.size());
}

std::size_t first_nonfinite(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(FirstNonfinite)(x.data(), x.size());
}

}  // namespace slipstream::vec
#endif  // HWY_ONCE
