// SPDX-License-Identifier: Apache-2.0
#include "schedule/ics_budget.h"

#include <gtest/gtest.h>

#include <cmath>

namespace slipstream {
namespace {

using Rule = IcsBudget::Rule;
using Measures = std::vector<IcsMeasure>;

TEST(IcsBudget, OpensAsTheLossFallsBelowItsFirstValue) {
  IcsBudget budget(Rule::kLoss, 1000);
  EXPECT_EQ(budget.update(Measures{{.loss = 2, .compute_s = 0.5, .bytes_per_s = 400}}), 0);
  EXPECT_EQ(budget.update(Measures{{.loss = 1, .compute_s = 0.5, .bytes_per_s = 400}}), 100);
  EXPECT_EQ(budget.update(Measures{{.loss = 3, .compute_s = 0.5, .bytes_per_s = 400}}), 0) << "never less than none";
  EXPECT_EQ(budget.update(Measures{{.loss = 0, .compute_s = 50, .bytes_per_s = 400}}), 1000) << "nor more than the cap";
}

TEST(IcsBudget, HidesItselfFromTheFastestAndBelievesWhoDidNotWaitForOthers) {
  IcsBudget budget(Rule::kLoss, 1000);
  budget.update(Measures{{.loss = 2}, {.loss = 4}});
  EXPECT_EQ(budget.update(Measures{{.loss = 1, .compute_s = 1, .bytes_per_s = 60},
                                   {.loss = 2, .compute_s = 3, .bytes_per_s = 80}}),
            40);  // 80 bytes/s × 1 s × (1 - 1.5 / 3)
}

TEST(IcsBudget, GrowsSteadilyWhileHiddenAndShrinksFastWhenNot) {
  IcsBudget budget(Rule::kMeasured, 1000);
  for (double bytes : {50, 100, 150}) EXPECT_EQ(budget.update(Measures{{.compute_s = 1}}), bytes);
  EXPECT_DOUBLE_EQ(budget.update(Measures{{.compute_s = 1}, {.compute_s = 1, .exposed_s = 0.1}}), 105);
  for (int i = 0; i < 100; ++i) budget.update(Measures{{.compute_s = 1}});
  EXPECT_EQ(budget.bytes(), 1000);
}

TEST(IcsBudget, ALossThatIsNoNumberStaysWithinTheCap) {
  IcsBudget budget(Rule::kLoss, 10);
  budget.update(Measures{{.loss = std::nan(""), .compute_s = 1, .bytes_per_s = 100}});
  EXPECT_LE(budget.bytes(), 10);
}

TEST(SelectIcs, TakesTheLeastImportantThatFitAndNoPinnedOnes) {
  const std::vector<IcsCandidate> parts{{40, 5.0}, {10, 1.0, true}, {30, 2.0}, {30, 2.0}, {10, 9.0}};
  EXPECT_EQ(select_ics(parts, 0), (std::vector<bool>{false, false, false, false, false}));
  EXPECT_EQ(select_ics(parts, 30), (std::vector<bool>{false, false, true, false, false})) << "the first of equal ones";
  EXPECT_EQ(select_ics(parts, 75), (std::vector<bool>{false, false, true, true, true}))
      << "what is too large is passed over";
  EXPECT_EQ(select_ics(parts, 1e9), (std::vector<bool>{true, false, true, true, true}));
  EXPECT_TRUE(select_ics({}, 10).empty());
}

}  // namespace
}  // namespace slipstream
