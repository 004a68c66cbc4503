// SPDX-License-Identifier: Apache-2.0
#include "strategy/finite_gradient.h"

#include <slipstream/base/error.h>

#include "base/vec.h"

namespace slipstream {

void require_finite(const Step& s, std::size_t offset, std::size_t count) {
  const std::size_t bad = vec::first_nonfinite(s.model.grads().subspan(offset, count));
  if (bad == count) return;
  fail<DivergedError>(
      "the gradient of '{}' on rank {} is not finite at step {}; try a smaller --lr, a warm-up (--lr-warmup-steps) or "
      "--clip-norm",
      s.model.slot_at(offset + bad).name, s.net.rank(), s.t);
}

}  // namespace slipstream
