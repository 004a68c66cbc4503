// SPDX-License-Identifier: Apache-2.0
//
// The loop of the Highway kernels, compiled once per target of the including source: whole vectors, then the tail as
// vectors of one lane through the same body, so that the tail rounds as the rest does and nothing is read past the end.

// A toggle instead of #pragma once: foreach_target.h includes this file once for every target.
#if defined(SLIPSTREAM_BASE_VEC_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPSTREAM_BASE_VEC_LOOP_INL_H_
#undef SLIPSTREAM_BASE_VEC_LOOP_INL_H_
#else
#define SLIPSTREAM_BASE_VEC_LOOP_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace slipstream::vec::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// body(d, i) handles the Lanes(d) elements from i on.
template <typename Body>
HWY_INLINE void each(std::size_t count, const Body& body) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(wide);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(wide, i);
  for (; i < count; ++i) body(one, i);
}

}  // namespace slipstream::vec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
