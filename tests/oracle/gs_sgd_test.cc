// SPDX-License-Identifier: Apache-2.0
#include "strategy/gs_sgd.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <bit>
#include <numeric>

#include "oracle/gs_sgd_oracle.h"
#include "oracle/simulated.h"
#include "oracle/sync_sgd_oracle.h"

namespace slipstream::oracle {
namespace {

using Words = std::vector<std::string>;

constexpr std::int64_t kSteps = 30;
constexpr Problem kProblem{.size = 101};
constexpr std::size_t kEntries = 20;
const Words kDensity = {"density=0.2"};  // 20 of 101
const Words kSketch = {"rows=3", "columns=16", "local=0"}, kIdentity = {"columns=1024", "local=0"};

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Those that leave the momentum to the strategy, at a rate that this larger problem stands tenfold.
std::vector<std::pair<const char*, Rule>> plain_rules() {
  std::vector<std::pair<const char*, Rule>> all = rules();
  std::erase_if(all, [](const auto& entry) { return entry.second.nesterov || entry.second.clip_norm > 0; });
  all.push_back({"falling rate", {.lr_decay = 0.1, .momentum = 0.5, .weight_decay = 0.01}});
  for (auto& [name, rule] : all) rule.lr = 0.01;
  return all;
}

std::function<Found(const Ranks&, std::int64_t)> exactly(std::size_t candidates) {
  return [=](const Ranks& memories, std::int64_t) {
    return Found{largest(mean(memories), candidates), mean(memories)};
  };
}

// Through the library's table of the mean; the table itself has its own tests, against a scalar definition. `local`:
// so many of a worker's largest entries are in it.
std::function<Found(const Ranks&, std::int64_t)> through_table(std::size_t candidates, bool mix = false,
                                                               std::size_t local = kProblem.size) {
  return [=](const Ranks& memories, std::int64_t t) {
    CountSketch sketch({.rows = 3, .columns = 16, .seed = static_cast<std::uint64_t>(t)});
    Ranks sketched(memories.size(), Vec(kProblem.size));
    for (std::size_t p = 0; p < memories.size(); ++p) {
      for (const std::size_t j : largest(memories[p], local)) sketched[p][j] = memories[p][j];
    }
    const Vec m = mean(sketched);
    sketch.add(0, std::vector<float>(m.begin(), m.end()));
    const auto picked = mix ? sketch.heavymix(m.size(), candidates, static_cast<std::uint64_t>(t))
                            : sketch.heaviest(m.size(), candidates);
    std::vector<float> estimates(m.size());
    sketch.estimate(0, estimates);
    return Found{{picked.begin(), picked.end()}, Vec(estimates.begin(), estimates.end())};
  };
}

class GsSgdOracle : public testing::TestWithParam<std::string> {  // the strategies of this kind
 protected:
  void expect_equal(const Gs& gs, const Words& set) const {
    for (const auto& [name, rule] : plain_rules()) {
      for (int workers : {1, 2, 3, 4, 7}) {
        EXPECT_LT(distance(simulate(kProblem, rule, workers, kSteps, GetParam(), kDensity + set),
                           gs_sgd(kProblem, rule, workers, kSteps, gs)),
                  kRounding)
            << name << ", P=" << workers;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Strategies, GsSgdOracle, testing::Values("gs", "sketched"),
                         [](const auto& info) { return info.param; });

TEST_P(GsSgdOracle, EveryStepOfEveryRankIsThePapers) {
  expect_equal({.k = kEntries, .find = through_table(80)}, kSketch);
  expect_equal({.k = kEntries, .find = through_table(40)}, kSketch + Words{"candidates=2"});
}

TEST_P(GsSgdOracle, SoItIsWithMomentumCorrection) {
  expect_equal({.k = kEntries, .corrected = true, .find = through_table(80)}, kSketch + Words{"momentum=corrected"});
  expect_equal({.k = kEntries, .corrected = true, .masking = false, .find = through_table(80)},
               kSketch + Words{"momentum=corrected", "masking=false"});
}

TEST_P(GsSgdOracle, SoItIsWithTheLargestEntriesOfAWorkerOnly) {
  expect_equal({.k = kEntries, .find = through_table(80, false, kEntries)}, kSketch + Words{"local=1"});
  expect_equal({.k = kEntries, .find = through_table(80, false, 30)}, kSketch + Words{"local=1.5"});
}

TEST_P(GsSgdOracle, SoItIsWithHeavymix) {
  expect_equal({.k = kEntries, .find = through_table(kEntries, true)}, kSketch + Words{"recover=heavymix"});
}

TEST_P(GsSgdOracle, SoItIsWithEstimatesOnly) {
  expect_equal({.k = kEntries, .exact = false, .find = exactly(kEntries)}, kIdentity + Words{"exact=false"});
}

// One row with a cell for every coordinate: the true global top-k with error feedback.
TEST_P(GsSgdOracle, ATableAsLargeAsTheModelFindsTheTrueTopK) {  // GS-7
  expect_equal({.k = kEntries, .find = exactly(kEntries)}, kIdentity);
  expect_equal({.k = kEntries, .find = exactly(kEntries)}, kIdentity + Words{"candidates=1"});
}

TEST(GsSgd, OraclesTellRulesApart) {
  const Rule rule{.lr = 0.01, .momentum = 0.9};
  const Gs gs{.k = kEntries, .find = through_table(80)};
  const Course run = gs_sgd(kProblem, rule, 3, kSteps, gs);
  const auto differs = [&](Gs other) {
    EXPECT_GT(distance(run, gs_sgd(kProblem, rule, 3, kSteps, other)), 100 * kRounding);
  };
  Gs corrected = gs, fewer = gs, exact = gs, narrow = gs, local = gs;
  corrected.corrected = true;
  fewer.k = kEntries - 1;
  exact.find = exactly(kEntries);
  narrow.find = through_table(79);
  local.find = through_table(80, false, kEntries);
  for (const Gs& other : {corrected, fewer, exact, narrow, local}) differs(other);
}

// What was applied and what is owed add up to what was accumulated, whatever the table says.
TEST(GsSgd, WhatIsNotAppliedIsOwed) {  // GS-4
  for (const Words& mode : {Words{}, Words{"recover=heavymix"}, Words{"exact=false", "columns=32"}, Words{"local=1"},
                            Words{"topology=ring"}}) {
    for (const int workers : {1, 2, 3, 7}) {
      const Rule rule{.lr = 0.01};
      SimJobOptions job;
      Ranks weights(static_cast<std::size_t>(kSteps));  // of rank 0, by step
      job.world.ranks = workers;
      job.task = std::make_shared<ProblemTask>(kProblem);
      job.make_strategy = Registry::builtin().configure("gs", kDensity + kSketch + mode).make;
      job.optimizer = optimizer_of(rule);
      job.steps = kSteps + 1;
      job.stop_after = kSteps;
      job.on_step_end = [&](int rank, std::int64_t t, std::span<const float> w) {
        if (rank == 0) weights[static_cast<std::size_t>(t)].assign(w.begin(), w.end());
      };
      const SimJobResult result = run_sim_job(job);
      Vec expected = kProblem.start(), w = kProblem.start();
      for (std::int64_t t = 0; t < kSteps; ++t) {
        for (int p = 0; p < workers; ++p) {
          const Vec g = kProblem.gradient(w, p, t);
          for (std::size_t j = 0; j < w.size(); ++j) expected[j] -= rule.lr * g[j] / workers;
        }
        w = weights[static_cast<std::size_t>(t)];
      }
      Vec settled = w;
      ASSERT_TRUE(result.saved.has_value());
      double still_owed = 0;
      for (const StateArchive& state : result.saved->ranks) {
        const auto& residual = std::get<std::vector<float>>(state.entries().at("strategy/residual"));
        for (std::size_t j = 0; j < w.size(); ++j) settled[j] -= rule.lr * residual[j] / workers;
        for (const float x : residual) still_owed += std::abs(x);
      }
      EXPECT_LT(distance(Ranks{settled}, Ranks{expected}), kRounding) << fmt::format("{}", fmt::join(mode, " "));
      EXPECT_GT(still_owed, 1) << "nothing was at stake";
    }
  }
}

TEST(GsSgd, ApplyingEverythingWithoutMomentumIsSyncSgdToRounding) {  // GS-5
  for (const Rule& rule : {Rule{}, Rule{.weight_decay = 0.01}}) {
    for (const int workers : {1, 2, 3, 4, 7}) {
      const Course run = simulate(kProblem, rule, workers, kSteps, "gs", kSketch + Words{"density=1"});
      EXPECT_LT(distance(run, simulate(kProblem, rule, workers, kSteps, "ssgd")), kRounding) << workers;
    }
  }
}

TEST(GsSgd, ApplyingEverythingForgetsTheMomentumUnlessItIsNotMasked) {  // GS-6
  const Rule momentum{.lr = 0.02, .momentum = 0.9}, none{.lr = 0.02}, folded{.lr = 0.2};
  const auto run = [&](const Words& set) {
    return simulate(kProblem, momentum, 3, kSteps, "gs", kSketch + Words{"density=1"} + set);
  };
  const auto dense = [&](const Rule& rule) { return simulate(kProblem, rule, 3, kSteps, "ssgd"); };
  EXPECT_LT(distance(run({"momentum=corrected"}), dense(none)), kRounding);
  EXPECT_GT(distance(run({"momentum=corrected"}), dense(momentum)), 100 * kRounding);
  EXPECT_LT(distance(run({"momentum=corrected", "masking=false"}), dense(momentum)), kRounding);
  EXPECT_LT(distance(run({}), dense(folded)), kRounding);
}

TEST(GsSgd, AllRanksApplyTheSameCoordinatesInEveryStep) {  // GS-8
  const Problem large{.size = 3000};
  const Rule rule{.lr = 0.01, .momentum = 0.9};  // no decay: only what was selected moves
  for (const std::string strategy : {"gs", "sketched"}) {
    const Course run = simulate(large, rule, 7, kSteps, strategy, {"density=0.01", "columns=64"});
    Vec before = large.start();
    std::size_t different = 0;
    for (const Ranks& step : run.steps) {
      std::size_t moved = 0;
      for (std::size_t j = 0; j < before.size(); ++j) moved += step[0][j] != before[j] ? 1 : 0;
      EXPECT_GT(moved, 25U);
      EXPECT_LE(moved, 30U + 1U) << "the k largest, and the tensor of one element that travels whole";
      for (const Vec& rank : step) different += rank != step[0] ? 1 : 0;
      before = step[0];
    }
    EXPECT_EQ(different, 0U);
  }
}

TEST(GsSgd, TreeAndRingGiveTheSameToRoundingForAnyNumberOfWorkers) {  // GS-9
  const Rule rule{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.01};
  for (const int workers : {2, 3, 4, 5, 6, 7, 8, 9, 12, 16}) {
    const Course tree = simulate(kProblem, rule, workers, kSteps, "gs", kDensity + kSketch);
    EXPECT_LT(
        distance(tree, simulate(kProblem, rule, workers, kSteps, "gs", kDensity + kSketch + Words{"topology=ring"})),
        kRounding)
        << workers;
    EXPECT_LT(distance(tree, simulate(kProblem, rule, workers, kSteps, "sketched", kDensity + kSketch)), kRounding);
  }
}

TEST(GsSgd, SmallTensorsAreSummedWholeWithPlainMomentum) {
  const Rule rule{.lr = 0.01, .momentum = 0.9};
  for (const std::string strategy : {"gs", "sketched"}) {
    for (const int workers : {1, 2, 3, 7}) {
      const Course dense = simulate(kProblem, rule, workers, kSteps, "ssgd");
      // Every tensor of this model is smaller than the model.
      EXPECT_LT(distance(simulate(kProblem, rule, workers, kSteps, strategy, {"dense_below=1"}), dense), kRounding);
      // All but the last are; what is applied there is everything, too.
      const Words most = {"dense_below=0.5", "density=1", "momentum=corrected", "masking=false"};
      EXPECT_LT(distance(simulate(kProblem, rule, workers, kSteps, strategy, most), dense), kRounding);
    }
  }
}

TEST(GsSgd, EqualDataOnAllRanksEqualsOneWorker) {
  const Problem same{.size = 101, .same_data = true};
  const Rule rule{.lr = 0.01, .momentum = 0.9};
  const Course one = simulate(same, rule, 1, kSteps, "gs", kDensity + kSketch);
  for (const int workers : {2, 4, 8}) {  // sums of equal numbers and their halves are exact
    const Course run = simulate(same, rule, workers, kSteps, "gs", kDensity + kSketch);
    EXPECT_EQ(run.end, Ranks(static_cast<std::size_t>(workers), one.end[0])) << workers;
  }
}

TEST(GsSgd, BytesPerWorkerGrowWithTheLogarithmOfTheWorkersAlongTheTreeAndAreBoundedAroundTheRing) {
  const Words set = {"density=0.05", "rows=3", "columns=16"};
  const auto task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {400, 2}});
  // 400 of 402 elements are sketched with dense_below = 0.01: a table of 3 × 16, 2 small, 4 × 20 candidates.
  const double whole = 4.0 * (3 * 16 + 2 + 4 * 20);
  for (const int workers : {2, 3, 4, 5, 8, 16, 32, 64, 100, 128, 256}) {
    const auto most_sent = [&](const std::string& topology) {
      SimJobOptions job;
      job.world.ranks = workers;
      job.task = task;
      job.make_strategy = Registry::builtin().configure("gs", set + Words{"dense_below=0.01", topology}).make;
      job.optimizer = {.lr = 0.01};
      job.steps = 1;
      double most = 0;
      for (const SimRankResult& rank : run_sim_job(job).ranks) most = std::max(most, rank.steps.at(0).bytes_sent);
      return most;
    };
    EXPECT_EQ(most_sent("topology=tree"), std::bit_width(static_cast<unsigned>(workers - 1)) * whole) << workers;
    EXPECT_NEAR(most_sent("topology=ring"), 2.0 * (workers - 1) / workers * whole, 1e-6) << workers;
    EXPECT_LT(most_sent("topology=ring"), 2 * whole);
  }
}

TEST(GsSgd, RefusesAGradientThatIsNotFiniteByItsLayersName) {
  class Diverging final : public ToyTask {
   public:
    std::vector<Parameter> parameters() const override { return {{"bias", 2}, {"fine", 300}, {"steep", 5000}}; }
    void init(std::span<float> weights, std::uint64_t) const override { weights[0] = 1; }
    double gradient(std::span<const float>, std::span<float> grads, int rank, std::int64_t t) const override {
      if (rank == 1 && t == 2) grads[5301] = std::numeric_limits<float>::infinity();
      return 0;
    }
  };
  for (const std::string strategy : {"gs", "sketched"}) {
    SimJobOptions job;
    job.world.ranks = 3;
    job.task = std::make_shared<Diverging>();
    job.make_strategy = Registry::builtin().configure(strategy, {}).make;
    try {
      run_sim_job(job);
      FAIL() << strategy << " took an infinity";
    } catch (const DivergedError& refusal) {
      EXPECT_NE(std::string(refusal.what()).find("'steep' on rank 1"), std::string::npos) << refusal.what();
    }
  }
}

TEST(GsSgd, RefusesTablesAndOptimizersThatDoNotFit) {
  for (const std::string bad : {"rows=4", "columns=100"}) {
    EXPECT_THROW(Registry::builtin().configure("gs", {bad}).make(), ConfigError) << bad;
    EXPECT_THROW(Registry::builtin().configure("sketched", {bad}).make(), ConfigError) << bad;
  }
  for (const OptimizerOptions& optimizer :
       {OptimizerOptions{.kind = "adam"}, OptimizerOptions{.nesterov = true}, OptimizerOptions{.clip_norm = 1}}) {
    EXPECT_THROW(SketchOptions{}.check_optimizer(optimizer), ConfigError);
  }
  EXPECT_NO_THROW(SketchOptions{}.check_optimizer({}));
}

}  // namespace
}  // namespace slipstream::oracle
