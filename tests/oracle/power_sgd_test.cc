// SPDX-License-Identifier: Apache-2.0
#include "strategy/power_sgd.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "oracle/power_sgd_oracle.h"
#include "oracle/simulated.h"

namespace slipstream::oracle {
namespace {

// Power iteration magnifies rounding where two singular values are near: few steps, then.
constexpr std::int64_t kSteps = 6;
constexpr Problem kProblem{.size = 65};  // its last layer is a matrix of 5 × 12
constexpr Matrix kMatrix{5, 5, 12};

// The factor the strategy starts from, as its saved state has it.
Ranks first_factor(std::size_t r) {
  SimJobOptions job;
  job.task = std::make_shared<ProblemTask>(kProblem);
  job.make_strategy = Registry::builtin().configure("powersgd", {fmt::format("rank={}", r), "min_shrink=1"}).make;
  job.optimizer = {.lr = 0.1};
  job.stop_after = 0;
  const auto result = run_sim_job(job);
  const auto& right = std::get<std::vector<float>>(result.saved->ranks[0].entries().at("strategy/right factors 0"));
  Ranks b;
  for (std::size_t j = 0; j < r; ++j) {
    const auto begin = right.begin() + static_cast<std::ptrdiff_t>(j * kMatrix.columns);
    b.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(kMatrix.columns));
  }
  return b;
}

TEST(PowerSgdOracle, EveryStepOfEveryRankIsThePapers) {
  for (std::size_t r : {1, 2}) {
    const Ranks b = first_factor(r);
    for (int workers : {1, 2, 3, 4, 7}) {
      for (const auto& [name, rule] : rules()) {
        const Course run =
            simulate(kProblem, rule, workers, kSteps, "powersgd", {fmt::format("rank={}", r), "min_shrink=1"});
        EXPECT_LT(distance(run, power_sgd(kProblem, rule, workers, kSteps, kMatrix, b)), kRounding)
            << name << ", P=" << workers << ", r=" << r;
      }
    }
  }
}

TEST(PowerSgdOracle, OraclesTellRulesApart) {
  const Rule rule{.momentum = 0.9};
  const Course run = power_sgd(kProblem, rule, 3, kSteps, kMatrix, first_factor(1));
  EXPECT_GT(distance(run, power_sgd(kProblem, rule, 3, kSteps, kMatrix, first_factor(2))), 100 * kRounding);
  EXPECT_GT(distance(run, simulate(kProblem, rule, 3, kSteps, "ssgd")), 100 * kRounding);
}

TEST(PowerSgd, FullRankEqualsSyncSgdToRounding) {
  for (int workers : {1, 2, 3, 7}) {
    for (const auto& [name, rule] : rules()) {
      // Where nothing shrinks, nothing is compressed …
      const Course as_it_is = simulate(kProblem, rule, workers, kSteps, "powersgd", {"rank=5"});
      EXPECT_EQ(as_it_is, simulate(kProblem, rule, workers, kSteps, "powersgd", {"warmup_steps=1000"}));
      EXPECT_LT(distance(as_it_is, simulate(kProblem, rule, workers, kSteps, "ssgd")), kRounding)
          << name << ", P=" << workers;
    }
  }
}

TEST(PowerSgd, AGradientThatIsZeroForAWhileIsFollowedWhenItComesBack) {
  class Sleeper final : public ToyTask {
   public:
    std::vector<Parameter> parameters() const override { return {{"matrix", 48, 6}}; }
    void init(std::span<float> weights, std::uint64_t) const override {
      std::fill(weights.begin(), weights.end(), 1.0F);
    }
    double gradient(std::span<const float> w, std::span<float> g, int, std::int64_t t) const override {
      for (std::size_t j = 0; j < g.size(); ++j) g[j] = t < 5 ? 0.0F : w[j];
      return 0;
    }
  };
  SimJobOptions job;
  job.task = std::make_shared<Sleeper>();
  job.make_strategy = Registry::builtin().configure("powersgd", {"rank=1"}).make;
  job.optimizer = {.lr = 0.1};
  job.steps = 40;
  const auto result = run_sim_job(job);
  ASSERT_TRUE(result.agreement());
  for (float w : result.ranks[0].weights) EXPECT_LT(std::abs(w), 0.5F);
}

}  // namespace
}  // namespace slipstream::oracle
