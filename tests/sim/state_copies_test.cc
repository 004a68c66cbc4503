// SPDX-License-Identifier: Apache-2.0
#include "sim/state_copies.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

double copies(const char* strategy, const OptimizerOptions& optimizer) {
  const Registry registry = Registry::builtin();
  return state_copies(registry.find(strategy), optimizer).value();
}

TEST(StateCopies, CountWhatIsHeldAndNothingThatIsNeverRead) {
  const OptimizerOptions sgd, plain{.momentum = 0}, adamw{.kind = "adamw"};
  EXPECT_DOUBLE_EQ(copies("ssgd", plain), 0);
  EXPECT_DOUBLE_EQ(copies("ssgd", sgd), 1);
  EXPECT_DOUBLE_EQ(copies("ssgd", adamw), 2);
  for (const char* strategy : {"topk", "gtopk", "lags"}) {
    EXPECT_DOUBLE_EQ(copies(strategy, plain), 1) << strategy << " holds what is owed";
    EXPECT_DOUBLE_EQ(copies(strategy, sgd), 1.25) << strategy << " and how long it waits, in a byte";
    EXPECT_DOUBLE_EQ(copies(strategy, adamw), 2.25) << strategy << " and a second moment";
  }
}

}  // namespace
}  // namespace slipstream
