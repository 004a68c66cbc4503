// SPDX-License-Identifier: Apache-2.0
#include "correction/own_clip.h"

#include <cmath>
#include <numeric>

#include "base/vec.h"

namespace slipstream {
namespace {

constexpr float kKept = 0.9F;  // of the running mean, at every step

}  // namespace

void OwnClip::clip(std::size_t bucket, std::span<float> grads) {
  note(bucket, grads);
  const double all = std::accumulate(usual_.begin(), usual_.end(), 0.0);
  if (all > 0.0) shorten(grads, now_[bucket], limit_ * std::sqrt(static_cast<double>(usual_[bucket]) / all));
}

void OwnClip::clip_whole(std::span<float> grads) { shorten(grads, vec::sum_of_squares(grads), limit_); }

void OwnClip::note(std::size_t bucket, std::span<const float> grads) {
  now_[bucket] = static_cast<float>(vec::sum_of_squares(grads));
}

void OwnClip::shorten(std::span<float> grads, double squared_norm, double limit) const {
  const double factor = limit / (std::sqrt(squared_norm) + 1e-6);       // torch's own guard against a norm of 0
  if (!(factor >= 1.0)) vec::scale(grads, static_cast<float>(factor));  // a NaN passes on, to be seen
}

void OwnClip::end_step() {
  for (const float squared : now_) {
    if (!std::isfinite(squared)) return;  // a diverged step says nothing of what is usual
  }
  vec::mix(usual_, known_ != 0 ? kKept : 0.0F, now_, known_ != 0 ? 1.0F - kKept : 1.0F);
  known_ = 1;
}

void OwnClip::visit(StateVisitor& v) {
  v.floats("usual", usual_);
  v.integer("known", known_);
}

}  // namespace slipstream
