// SPDX-License-Identifier: Apache-2.0
#include "strategy/shared_anchor.h"

#include <slipstream/base/error.h>

#include "base/vec.h"

namespace slipstream {

void SharedAnchor::reset(std::span<const float> weights) { vec::copy(shared_, weights); }

void SharedAnchor::start(Step& s) {
  if (shared_.empty()) return;
  vec::subtract(moved_, s.model.weights(), shared_);
  // One value that is not finite would enter every rank's anchor and never leave it.
  if (const std::size_t bad = vec::first_nonfinite(moved_); bad < moved_.size()) {
    fail<DivergedError>(
        "the weights of '{}' on rank {} are not finite after step {}; try a smaller --lr, a warm-up "
        "(--lr-warmup-steps) or --clip-norm",
        s.model.slot_at(bad).name, s.net.rank(), s.t);
  }
  vec::add(owed_, moved_);
  mean_->start(s.net, owed_, s.t);
  under_way_ = true;
}

void SharedAnchor::settle() {
  if (!under_way_) return;
  mean_->finish(owed_, shared_, moved_);
  under_way_ = false;
}

void SharedAnchor::merge(std::span<float> weights) {
  settle();
  vec::subtract(weights, weights, moved_);  // u - M: what was moved alone, less what all have moved
}

void SharedAnchor::visit(StateVisitor& v) {
  settle();
  v.floats("shared", shared_);
  v.floats("moved", moved_);
  v.floats("owed", owed_);
}

}  // namespace slipstream
