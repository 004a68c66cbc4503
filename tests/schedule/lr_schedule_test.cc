// SPDX-License-Identifier: Apache-2.0
#include "schedule/lr_schedule.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <string>
#include <vector>

namespace slipstream {
namespace {

TEST(LrSchedule, ConstantIsTheBaseRate) {
  const LrSchedule schedule;
  EXPECT_EQ(schedule.at(0, 0.1), 0.1);
  EXPECT_EQ(schedule.at(1'000'000, 0.1), 0.1);
}

TEST(LrSchedule, EveryKindWarmsUpInEqualSteps) {
  for (const char* kind : {"constant", "step", "cosine"}) {
    const LrSchedule schedule{.kind = kind, .warmup_steps = 5, .total_steps = 100};
    EXPECT_DOUBLE_EQ(schedule.at(0, 1.0), 0.2) << kind;
    EXPECT_DOUBLE_EQ(schedule.at(3, 1.0), 0.8) << kind;
    EXPECT_DOUBLE_EQ(schedule.at(4, 1.0), 1.0) << kind;
    EXPECT_DOUBLE_EQ(schedule.at(5, 1.0), 1.0) << kind;
  }
}

TEST(LrSchedule, StepCutsByGammaAtEachMultiple) {
  const LrSchedule schedule{.kind = "step", .step_every = 10, .step_gamma = 0.5};
  EXPECT_DOUBLE_EQ(schedule.at(9, 0.8), 0.8);
  EXPECT_DOUBLE_EQ(schedule.at(10, 0.8), 0.4);
  EXPECT_DOUBLE_EQ(schedule.at(19, 0.8), 0.4);
  EXPECT_DOUBLE_EQ(schedule.at(20, 0.8), 0.2);
}

TEST(LrSchedule, CosineFallsFromBaseToFinalAndStaysThere) {
  const LrSchedule schedule{.kind = "cosine", .warmup_steps = 20, .final_lr = 0.1, .total_steps = 120};
  EXPECT_DOUBLE_EQ(schedule.at(20, 0.9), 0.9);
  EXPECT_DOUBLE_EQ(schedule.at(70, 0.9), 0.5);
  EXPECT_NEAR(schedule.at(45, 0.9), 0.5 + 0.4 * 0.70710678118654752, 1e-12);
  for (std::int64_t t = 20; t < 119; ++t) EXPECT_GT(schedule.at(t, 0.9), schedule.at(t + 1, 0.9));
  EXPECT_DOUBLE_EQ(schedule.at(120, 0.9), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(500, 0.9), 0.1);
}

TEST(LrSchedule, ValidateRefusesContradictions) {
  const LrSchedule good{.kind = "cosine", .warmup_steps = 5, .total_steps = 10};
  EXPECT_NO_THROW(good.validate(0.1));
  EXPECT_NO_THROW(LrSchedule{}.validate(0.1));

  EXPECT_THROW((LrSchedule{.kind = "cosine"}.validate(0.1)), ConfigError) << "length unknown";
  EXPECT_THROW((LrSchedule{.kind = "cosine", .warmup_steps = 10, .total_steps = 10}.validate(0.1)), ConfigError);
  EXPECT_THROW((LrSchedule{.kind = "cosine", .final_lr = 0.2, .total_steps = 10}.validate(0.1)), ConfigError);
  EXPECT_THROW((LrSchedule{.kind = "step", .step_every = 0}.validate(0.1)), ConfigError);
  EXPECT_THROW((LrSchedule{.kind = "linear"}.validate(0.1)), ConfigError);
}

TEST(LrSchedule, IsSetByName) {
  LrSchedule schedule;
  OptionSet set("learning rate");
  schedule.describe(set);
  for (const char* pair :
       {"lr_schedule=step", "lr_warmup_steps=3", "lr_step_every=7", "lr_step_gamma=0.2", "lr_final=0.01"}) {
    set.set_pair(pair);
  }
  EXPECT_EQ(schedule.kind, "step");
  EXPECT_EQ(schedule.warmup_steps, 3);
  EXPECT_EQ(schedule.step_every, 7);
  EXPECT_EQ(schedule.step_gamma, 0.2);
  EXPECT_EQ(schedule.final_lr, 0.01);
}

}  // namespace
}  // namespace slipstream
