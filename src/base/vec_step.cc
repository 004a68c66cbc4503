// SPDX-License-Identifier: Apache-2.0
//
// The optimizers' inner loops: each reads and writes weights and state once.
#include <slipstream/base/error.h>

#include "base/vec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/vec_step.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "base/vec_loop-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace slipstream::vec::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// g' = scale g + decay w
template <typename D>
HWY_INLINE hn::Vec<D> decayed(D d, const float* g, hn::Vec<D> w, float scale, float decay) {
  return hn::Add(hn::Mul(hn::Set(d, scale), hn::LoadU(d, g)), hn::Mul(hn::Set(d, decay), w));
}

void SgdPlain(float* w, const float* g, const SgdStep& step, std::size_t count) {
  const SgdStep s = step;  // a copy: the compiler knows that stores to w leave it alone
  each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto old = hn::LoadU(d, w + i);
    const auto grad = decayed(d, g + i, old, s.scale, s.weight_decay);
    hn::StoreU(hn::Sub(old, hn::Mul(hn::Set(d, s.lr), grad)), d, w + i);
  });
}

void SgdMomentum(float* w, const float* g, float* v, const SgdStep& step, std::size_t count) {
  const SgdStep s = step;
  each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto old = hn::LoadU(d, w + i);
    const auto grad = decayed(d, g + i, old, s.scale, s.weight_decay);
    const auto velocity = hn::Add(hn::Mul(hn::Set(d, s.momentum), hn::LoadU(d, v + i)), grad);
    hn::StoreU(velocity, d, v + i);
    hn::StoreU(hn::Sub(old, hn::Mul(hn::Set(d, s.lr), velocity)), d, w + i);
  });
}

void SgdNesterov(float* w, const float* g, float* v, const SgdStep& step, std::size_t count) {
  const SgdStep s = step;
  each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto momentum = hn::Set(d, s.momentum);
    const auto old = hn::LoadU(d, w + i);
    const auto grad = decayed(d, g + i, old, s.scale, s.weight_decay);
    const auto velocity = hn::Add(hn::Mul(momentum, hn::LoadU(d, v + i)), grad);
    hn::StoreU(velocity, d, v + i);
    const auto ahead = hn::Add(grad, hn::Mul(momentum, velocity));
    hn::StoreU(hn::Sub(old, hn::Mul(hn::Set(d, s.lr), ahead)), d, w + i);
  });
}

void Adam(float* w, const float* g, float* m, float* u, const AdamStep& step, std::size_t count) {
  const AdamStep s = step;
  each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto old = hn::LoadU(d, w + i);
    const auto grad = decayed(d, g + i, old, s.scale, s.l2_decay);
    const auto mean =
        hn::Add(hn::Mul(hn::Set(d, s.beta1), hn::LoadU(d, m + i)), hn::Mul(hn::Set(d, s.one_minus_beta1), grad));
    const auto square = hn::Mul(grad, grad);
    const auto variance =
        hn::Add(hn::Mul(hn::Set(d, s.beta2), hn::LoadU(d, u + i)), hn::Mul(hn::Set(d, s.one_minus_beta2), square));
    hn::StoreU(mean, d, m + i);
    hn::StoreU(variance, d, u + i);
    // Exact division and root, not the processor's approximations: those differ between vendors.
    const auto below = hn::Add(hn::Div(hn::Sqrt(variance), hn::Set(d, s.root_correction2)), hn::Set(d, s.eps));
    const auto moved = hn::Div(hn::Mul(hn::Set(d, s.rate), mean), below);
    hn::StoreU(hn::Sub(hn::Mul(hn::Set(d, s.keep), old), moved), d, w + i);
  });
}

void AdamOwn(float* g, float* u, const AdamDirection& step, std::size_t count) {
  const AdamDirection s = step;
  each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto grad = hn::LoadU(d, g + i);
    const auto square = hn::Mul(grad, grad);
    const auto variance =
        hn::Add(hn::Mul(hn::Set(d, s.beta2), hn::LoadU(d, u + i)), hn::Mul(hn::Set(d, s.one_minus_beta2), square));
    hn::StoreU(variance, d, u + i);
    const auto below = hn::Add(hn::Div(hn::Sqrt(variance), hn::Set(d, s.root_correction2)), hn::Set(d, s.eps));
    hn::StoreU(hn::Div(grad, below), d, g + i);
  });
}

}  // namespace slipstream::vec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::vec {

HWY_EXPORT(SgdPlain);
HWY_EXPORT(SgdMomentum);
HWY_EXPORT(SgdNesterov);
HWY_EXPORT(Adam);
HWY_EXPORT(AdamOwn);

void sgd_step(std::span<float> w, std::span<const float> g, std::span<float> v, const SgdStep& step) {
  check(w.size() == g.size(), "vec::sgd_step: {} weights but {} gradients", w.size(), g.size());
  if (step.momentum == 0.0F) {
    check(v.empty() && !step.nesterov, "vec::sgd_step: without momentum there is neither velocity nor Nesterov");
    HWY_DYNAMIC_DISPATCH(SgdPlain)(w.data(), g.data(), step, w.size());
    return;
  }
  check(w.size() == v.size(), "vec::sgd_step: {} weights but a velocity of {}", w.size(), v.size());
  if (step.nesterov) {
    HWY_DYNAMIC_DISPATCH(SgdNesterov)(w.data(), g.data(), v.data(), step, w.size());
  } else {
    HWY_DYNAMIC_DISPATCH(SgdMomentum)(w.data(), g.data(), v.data(), step, w.size());
  }
}

void adam_step(std::span<float> w, std::span<const float> g, std::span<float> m, std::span<float> u,
               const AdamStep& step) {
  check(w.size() == g.size(), "vec::adam_step: {} weights but {} gradients", w.size(), g.size());
  check(w.size() == m.size() && w.size() == u.size(), "vec::adam_step: {} weights but moments of {} and {}", w.size(),
        m.size(), u.size());
  HWY_DYNAMIC_DISPATCH(Adam)(w.data(), g.data(), m.data(), u.data(), step, w.size());
}

void adam_direction(std::span<float> g, std::span<float> u, const AdamDirection& step) {
  check(g.size() == u.size(), "vec::adam_direction: {} gradients but a moment of {}", g.size(), u.size());
  HWY_DYNAMIC_DISPATCH(AdamOwn)(g.data(), u.data(), step, g.size());
}

}  // namespace slipstream::vec
#endif  // HWY_ONCE
