// SPDX-License-Identifier: Apache-2.0
#include "correction/anchor.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

using Floats = std::vector<float>;

// Snapshots (1, 2) and (3, 6) of two ranks: their mean is (2, 4).
Anchor summed(bool keeps_own, const Floats& others = {}) {
  Anchor anchor(2, others.size(), keeps_own);
  anchor.snapshot(Floats{1, 2}, others);
  anchor.message()[0] += 3;
  anchor.message()[1] += 6;
  return anchor;
}

TEST(Anchor, LerpKeepsAShareOfTheWeights) {
  Floats w = {10, 20};
  summed(false).merge_lerp(w, 0.25F, 2);
  EXPECT_EQ(w, (Floats{0.25F * 10 + 0.75F * 2, 0.25F * 20 + 0.75F * 4}));
}

TEST(Anchor, AdditiveKeepsWhatWasAddedSinceTheSnapshot) {
  Floats w = {1 + 9, 2 + 18};
  summed(true).merge_additive(w, 2);
  EXPECT_EQ(w, (Floats{2 + 9, 4 + 18}));
}

TEST(Anchor, OtherFloatsTravelBehindTheWeights) {
  const Anchor anchor = summed(true, {8});
  Floats other = {4};
  anchor.merge_lerp_others(other, 0.5F, 2);
  EXPECT_EQ(other, (Floats{0.5F * 4 + 0.5F * 8 / 2}));
}

TEST(Anchor, ASnapshotIsNotMovedByLaterSteps) {
  Floats w = {1, 2};
  Anchor anchor(2, 0, true);
  anchor.snapshot(w, {});
  w = {5, 7};
  anchor.merge_additive(w, 1);
  EXPECT_EQ(w, (Floats{5, 7}));
}

}  // namespace
}  // namespace slipstream
