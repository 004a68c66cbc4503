// SPDX-License-Identifier: Apache-2.0
#include "strategy/diloco.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include "oracle/diloco_oracle.h"
#include "oracle/simulated.h"

namespace slipstream::oracle {
namespace {

constexpr std::int64_t kSteps = 40;

std::vector<std::string> options(const DilocoRule& d) {
  return {fmt::format("period={}", d.H),  fmt::format("delay={}", d.del),    fmt::format("fragments={}", d.fragments),
          fmt::format("mix={}", d.alpha), fmt::format("outer_lr={}", d.eta), fmt::format("outer_momentum={}", d.mu)};
}

double off(const Rule& rule, int workers, const DilocoRule& d) {
  const Course run = simulate({}, rule, workers, kSteps, "streaming-diloco", options(d));
  return distance(run, diloco({}, rule, workers, kSteps, d));
}

TEST(DilocoOracle, EveryStepOfEveryRankIsThePapers) {
  for (int workers : {1, 2, 3, 4, 7}) {
    for (const auto& [name, rule] : rules()) {
      const Course run = simulate({}, rule, workers, kSteps, "diloco", {"period=5"});
      EXPECT_LT(distance(run, diloco({}, rule, workers, kSteps, {})), kRounding) << name << ", P=" << workers;
    }
  }
}

TEST(StreamingDilocoOracle, EveryStepOfEveryRankIsThePapers) {
  for (int workers : {1, 2, 3, 4, 7}) {
    for (const auto& [name, rule] : rules()) {
      for (std::size_t fragments : {1, 3, 4}) {
        const DilocoRule d{.H = 6, .del = 2, .fragments = fragments, .alpha = 0.5};
        EXPECT_LT(off(rule, workers, d), kRounding) << name << ", P=" << workers << ", " << fragments << " fragments";
      }
    }
  }
}

TEST(StreamingDilocoOracle, HoldsForAnyPeriodDelayAndFragments) {
  const Rule rule{.momentum = 0.9, .weight_decay = 0.01};
  for (std::int64_t H : {1, 2, 5, 39, 100}) {
    for (std::int64_t del : {0L, 1L, H / 2, H}) {
      for (std::size_t fragments : {1, 2, 11, 13}) {
        for (double mu : {0.0, 0.5}) {
          const DilocoRule d{.H = H, .del = del, .fragments = fragments, .alpha = 0.25, .eta = 0.5, .mu = mu};
          EXPECT_LT(off(rule, 3, d), kRounding) << H << ' ' << del << ' ' << fragments << ' ' << mu;
        }
      }
    }
  }
}

TEST(OverlapLocalOracle, EveryStepOfEveryRankIsThePapers) {
  for (int workers : {1, 2, 3, 7}) {
    for (const auto& [name, rule] : rules()) {
      const DilocoRule d{.H = 4, .del = 4, .alpha = 0.4, .eta = 1, .mu = 0.7, .nesterov = false};
      const Course run = simulate({}, rule, workers, kSteps, "overlap-local");
      EXPECT_LT(distance(run, diloco({}, rule, workers, kSteps, d)), kRounding) << name << ", P=" << workers;
    }
  }
}

TEST(DilocoOracle, OraclesTellRulesApart) {
  const Rule rule{.momentum = 0.9};
  const DilocoRule usual{.H = 6, .del = 2, .fragments = 2, .alpha = 0.5};
  const auto changed = [&](const auto& change) {
    DilocoRule other = usual;
    change(other);
    return distance(diloco({}, rule, 3, kSteps, usual), diloco({}, rule, 3, kSteps, other));
  };
  EXPECT_GT(changed([](DilocoRule& d) { d.H = 5; }), 100 * kRounding);
  EXPECT_GT(changed([](DilocoRule& d) { d.del = 3; }), 100 * kRounding);
  EXPECT_GT(changed([](DilocoRule& d) { d.fragments = 3; }), 100 * kRounding);
  EXPECT_GT(changed([](DilocoRule& d) { d.alpha = 0.4; }), 100 * kRounding);
  EXPECT_GT(changed([](DilocoRule& d) { d.eta = 0.6; }), 100 * kRounding);
  EXPECT_GT(changed([](DilocoRule& d) { d.mu = 0.8; }), 100 * kRounding);
  EXPECT_GT(changed([](DilocoRule& d) { d.nesterov = false; }), 100 * kRounding);
}

// Section 8, DiLoCo: H=1, inner SGD, eta=1, mu=0.
TEST(Diloco, OneInnerStepAndAPlainOuterStepIsSyncSgdToRounding) {
  for (int workers : {1, 2, 3, 7}) {
    const Course run = simulate({}, {}, workers, kSteps, "diloco", {"period=1", "outer_lr=1", "outer_momentum=0"});
    EXPECT_LT(distance(run, simulate({}, {}, workers, kSteps, "ssgd")), kRounding) << workers;
  }
}

TEST(Diloco, APlainOuterStepIsLocalSgdToRounding) {
  for (const auto& [name, rule] : rules()) {
    const Course run = simulate({}, rule, 3, kSteps, "diloco", {"period=4", "outer_lr=1", "outer_momentum=0"});
    EXPECT_LT(distance(run, simulate({}, rule, 3, kSteps, "local", {"period=4"})), kRounding) << name;
  }
}

// ID-4
TEST(StreamingDiloco, OneFragmentWithAPlainOuterStepIsDaSgdToRounding) {
  for (const auto& [name, rule] : rules()) {
    for (std::int64_t del : {0, 2, 5}) {
      const DilocoRule d{.H = 5, .del = del, .alpha = 0.25, .eta = 1, .mu = 0};
      const Course run = simulate({}, rule, 4, kSteps, "streaming-diloco", options(d));
      const Course dasgd =
          simulate({}, rule, 4, kSteps, "dasgd", {"period=5", fmt::format("delay={}", del), "merge=lerp", "mix=0.25"});
      EXPECT_LT(distance(run, dasgd), kRounding) << name << ", delay " << del;
    }
  }
}

TEST(Diloco, RanksDifferBetweenRoundsAndAgreeAfterThem) {
  const Course run = simulate({}, {.momentum = 0.9}, 3, 10, "diloco", {"period=4"});
  for (std::size_t t = 0; t < 10; ++t) {
    EXPECT_EQ(run.steps[t][0] == run.steps[t][1] && run.steps[t][0] == run.steps[t][2], t % 4 == 3) << "step " << t;
  }
}

TEST(StreamingDiloco, FragmentsSpreadTheTrafficOverThePeriod) {
  const FlatModel model({{"w", 100}});
  const auto configured = Registry::builtin().configure("streaming-diloco", {"period=8", "fragments=4"});
  for (std::int64_t t = 0; t < 40; ++t) {
    const double expected = t >= 7 && t % 2 == 1 ? 100.0 : 0.0;  // a quarter of 400 bytes, at P = 2
    EXPECT_EQ(configured.bytes_sent({model, 2, t}), expected) << t;
  }
}

TEST(StreamingDiloco, RefusesADelayLongerThanThePeriod) {
  EXPECT_THROW(Registry::builtin().configure("streaming-diloco", {"period=4", "delay=5"}).make(), ConfigError);
}

}  // namespace
}  // namespace slipstream::oracle
