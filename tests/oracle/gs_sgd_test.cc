// SPDX-License-Identifier: Apache-2.0
#include "strategy/gs_sgd.h"

#include <fmt/ranges.h>
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
constexpr Problem kProblem{.size = 101};               // layers of 4, 1, 0 and 96
const Words kFine = {"density=0.2", "dense_below=0"};  // k = 20
const Words kNarrow = {"rows=3", "columns=16"}, kIdentity = {"columns=1024"};

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// At a rate that this larger problem stands tenfold.
std::vector<std::pair<const char*, Rule>> slow_rules() {
  std::vector<std::pair<const char*, Rule>> all = direction_rules();
  for (auto& [name, rule] : all) rule.lr = 0.01;
  return all;
}

Words exactly(const std::string& strategy) {
  return strategy == "gs" ? Words{"wire=fp32", "topology=direct"} : Words{};
}

class GsSgdOracle : public testing::TestWithParam<std::string> {  // the strategies of this kind
 protected:
  void expect_equal(const Gs& gs, const Words& set) const {
    for (const auto& [name, rule] : slow_rules()) {
      for (int workers : {1, 2, 3, 4, 7}) {
        EXPECT_LT(distance(simulate(kProblem, rule, workers, kSteps, GetParam(), set + exactly(GetParam())),
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
  expect_equal({.k = 20, .candidates = 40, .local = 20}, kFine + kNarrow);
  expect_equal({.k = 20, .candidates = 80, .local = 20}, kFine + kNarrow + Words{"candidates=4"});
}

TEST_P(GsSgdOracle, SoItIsWithMoreOrAllOfAWorkersEntriesInTheTable) {
  expect_equal({.k = 20, .candidates = 40, .local = 30}, kFine + kNarrow + Words{"local=1.5"});
  expect_equal({.k = 20, .candidates = 40, .local = 101}, kFine + kNarrow + Words{"local=0"});
}

TEST_P(GsSgdOracle, SoItIsWithOneRow) {
  expect_equal({.k = 20, .candidates = 40, .local = 20, .rows = 1, .columns = 32},
               kFine + Words{"rows=1", "columns=32"});
}

// One row with a cell for every coordinate: the true top-k of the sum, with error feedback.
TEST_P(GsSgdOracle, ATableAsLargeAsTheModelFindsTheTrueTopK) {  // GS-7
  expect_equal({.k = 20, .candidates = 40, .local = 101, .columns = 0}, kFine + kIdentity + Words{"local=0"});
  expect_equal({.k = 20, .candidates = 20, .local = 101, .columns = 0},
               kFine + kIdentity + Words{"local=0", "candidates=1"});
}

TEST_P(GsSgdOracle, SmallTensorsBetweenLargeOnesAreSummedWhole) {
  std::vector<bool> one(kProblem.size), small(kProblem.size);
  one[4] = true;
  std::fill_n(small.begin(), 5, true);
  const Words density = {"density=0.2"};
  expect_equal({.k = 20, .candidates = 40, .local = 20, .small = one}, density + kNarrow + Words{"dense_below=2"});
  expect_equal({.k = 19, .candidates = 38, .local = 19, .small = small}, density + kNarrow + Words{"dense_below=5"});
}

// A model of one large tensor and small ones, with the density, rows, candidates and k columns that a run begins with; in
// fp32 and by owners, as all of this suite.
TEST_P(GsSgdOracle, SoItIsWithTheSizesThatARunBeginsWith) {
  const Problem large{.size = 6005};
  std::vector<bool> small(large.size);
  std::fill_n(small.begin(), 5, true);
  const Gs gs{.k = 120, .candidates = 240, .local = 120, .columns = 128, .small = small};
  for (const Rule& rule :
       {Rule{.lr = 1e-4, .momentum = 0.9, .weight_decay = 0.01}, Rule{.lr = 1e-4, .momentum = 0.9, .nesterov = true}}) {
    for (const int workers : {1, 4}) {
      const std::int64_t steps = 15;
      EXPECT_LT(distance(simulate(large, rule, workers, steps, GetParam(), exactly(GetParam())),
                         gs_sgd(large, rule, workers, steps, gs)),
                kRounding);
    }
  }
}

TEST(GsSgd, OraclesTellRulesApart) {
  const Rule rule{.lr = 0.01, .momentum = 0.9};
  const Gs gs{.k = 20, .candidates = 80, .local = 20};
  const Course run = gs_sgd(kProblem, rule, 3, kSteps, gs);
  Gs fewer = gs, exact = gs, narrow = gs, local = gs, rows = gs;
  fewer.k = 19;
  exact.columns = 0;
  narrow.candidates = 79;
  local.local = 21;
  rows.rows = 5;
  for (const Gs& other : {fewer, exact, narrow, local, rows}) {
    EXPECT_GT(distance(run, gs_sgd(kProblem, rule, 3, kSteps, other)), 100 * kRounding);
  }
  EXPECT_GT(distance(run, gs_sgd(kProblem, {.lr = 0.01, .momentum = 0.8}, 3, kSteps, gs)), 100 * kRounding);
}

// What was applied and what is owed add up to what was handed in, whatever the table says and the wire rounds.
TEST(GsSgd, WhatIsNotAppliedIsOwed) {  // GS-4
  for (const Words& mode : {Words{}, Words{"recover=heavymix"}, Words{"wire=fp32"}, Words{"wire=fp8"}, Words{"local=0"},
                            Words{"rows=1"}, Words{"topology=tree"}, Words{"topology=direct"}}) {
    for (const int workers : {1, 2, 3, 7}) {
      const Books books = keep_books(kProblem, {.lr = 0.01}, workers, kSteps, "gs", kFine + kNarrow + mode, true);
      EXPECT_LT(books.imbalance(), kRounding) << fmt::format("{}", fmt::join(mode, " "));
      EXPECT_GT(books.at_stake(), 0.01 / workers) << "nothing was at stake";
    }
  }
}

// The same over hundreds of steps with momentum: the sum of all directions, lr / (1 - m) g.
TEST(GsSgd, NothingIsLostWithMomentumEither) {
  const Rule momentum{.lr = 0.002, .momentum = 0.9};
  for (const std::string wire : {"wire=int8", "wire=bf16", "wire=fp32"}) {
    const Books books = keep_books(kProblem, momentum, 4, 300, "gs", kFine + kNarrow + Words{wire}, true);
    EXPECT_LT(books.imbalance(), 10 * kRounding);
    EXPECT_GT(books.at_stake(), 0.001);
  }
}

// By default the table gets wider or narrower by the recall that is measured.
TEST(GsSgd, NothingIsLostWhenTheTableChanges) {
  for (const int workers : {2, 3}) {
    const Books books =
        keep_books({.size = 6005}, {.lr = 1e-4, .momentum = 0.9}, workers, 240, "gs", {"dense_below=0"}, true);
    EXPECT_GE(books.news.size(), 2U) << "told at the start and at every change";
    EXPECT_LT(books.imbalance(), 10 * kRounding);
    EXPECT_GT(books.at_stake(), 0.001);
  }
}

TEST(GsSgd, ANarrowWireStaysNearTheExactOne) {
  const Rule rule{.lr = 0.01, .momentum = 0.9};
  const auto run = [&](const std::string& wire) {
    return simulate(kProblem, rule, 4, 200, "gs", kFine + Words{"columns=1024", "local=0", wire});
  };
  const auto exact = run("wire=fp32").end;
  for (const auto& [wire, near] : {std::pair{"wire=bf16", 0.02}, {"wire=int8", 0.1}}) {
    const double apart = distance(run(wire).end, exact);
    EXPECT_GT(apart, kRounding) << wire;
    EXPECT_LT(apart, near) << wire;
  }
}

// Every entry is then applied in every step, and moves as with momentum: by all rules, with small tensors and without.
TEST(GsSgd, ApplyingEverythingIsSyncSgdToRounding) {  // GS-5, GS-6
  for (const std::string strategy : {"gs", "sketched"}) {
    for (const auto& [name, rule] : lasting_rules()) {
      for (const int workers : {1, 2, 3, 4, 7}) {
        const Course dense = simulate(kProblem, rule, workers, kSteps, "ssgd");
        for (const Words& set :
             {Words{"density=1", "dense_below=0"}, Words{"density=1", "dense_below=5"}, Words{"dense_below=1000"}}) {
          EXPECT_LT(distance(simulate(kProblem, rule, workers, kSteps, strategy, set + exactly(strategy)), dense),
                    kRounding)
              << strategy << " " << name << ", P=" << workers;
        }
      }
    }
  }
}

// AdamW by the rule that all strategies with a memory share.
TEST(GsSgd, ApplyingEverythingWithAdamWIsWhatTopkDoes) {
  const auto run = [](const std::string& strategy, const Words& set) {
    SimJobOptions job;
    job.world.ranks = 3;
    job.task = std::make_shared<ProblemTask>(kProblem);
    job.make_strategy = Registry::builtin().configure(strategy, set).make;
    job.optimizer = {.kind = "adamw", .lr = 0.01, .weight_decay = 0.1};
    job.steps = kSteps;
    const auto weights = run_sim_job(job).ranks[0].weights;
    return Ranks{Vec(weights.begin(), weights.end())};
  };
  const Ranks topk = run("topk", {"density=1"});
  EXPECT_LT(distance(topk, run("gs", {"density=1", "dense_below=0", "wire=fp32"})), kRounding);
  EXPECT_LT(distance(topk, run("gs", {"density=1", "dense_below=5", "wire=fp32"})), kRounding);
  EXPECT_GT(distance(topk, run("gs", kFine)), 100 * kRounding);
}

TEST(GsSgd, AllRanksApplyTheSameCoordinatesInEveryStep) {  // GS-8
  const Problem large{.size = 3000};
  const Rule rule{.lr = 0.01, .momentum = 0.9};  // no decay: only what was selected moves
  for (const std::string strategy : {"gs", "sketched"}) {
    const Course run = simulate(large, rule, 7, kSteps, strategy, {"density=0.01", "dense_below=2", "columns=64"});
    Vec before = large.start();
    std::size_t different = 0;
    for (const Ranks& step : run.steps) {
      std::size_t moved = 0;
      for (std::size_t j = 0; j < before.size(); ++j) moved += step[0][j] != before[j] ? 1 : 0;
      EXPECT_GT(moved, 20U) << "sums far below the largest of their 256 are rounded to 0";
      EXPECT_LE(moved, 29U + 1U) << "the k largest, and the tensor of one element that travels whole";
      for (const Vec& rank : step) different += rank != step[0] ? 1 : 0;
      before = step[0];
    }
    EXPECT_EQ(different, 0U);
  }
}

TEST(GsSgd, TreeAndDirectExchangeGiveTheSameToRoundingForAnyNumberOfWorkers) {  // GS-9
  const Rule rule{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.01};
  const Words set = kFine + kNarrow;
  for (const int workers : {2, 3, 4, 5, 6, 7, 8, 9, 12, 16}) {
    const Course tree = simulate(kProblem, rule, workers, kSteps, "gs", set + Words{"topology=tree"});
    EXPECT_LT(distance(tree, simulate(kProblem, rule, workers, kSteps, "gs", set + exactly("gs"))), kRounding)
        << workers;
    EXPECT_LT(distance(tree, simulate(kProblem, rule, workers, kSteps, "sketched", set)), kRounding);
  }
}

TEST(GsSgd, EqualDataOnAllRanksEqualsOneWorker) {
  const Problem same{.size = 101, .same_data = true};
  const Rule rule{.lr = 0.01, .momentum = 0.9};
  const Words set = {"density=1", "dense_below=0", "topology=tree"};
  const Course one = simulate(same, rule, 1, kSteps, "gs", set);
  for (const int workers : {2, 4, 8}) {  // doubled, up the tree, numbers stay exact
    const Course run = simulate(same, rule, workers, kSteps, "gs", set);
    EXPECT_EQ(run.end, Ranks(static_cast<std::size_t>(workers), one.end[0])) << workers;
  }
}

double most_sent(const Words& set, int workers, const std::vector<std::size_t>& layers) {
  SimJobOptions job;
  job.world.ranks = workers;
  job.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = layers});
  job.make_strategy = Registry::builtin().configure("gs", set).make;
  job.optimizer = {.lr = 0.01};
  job.steps = 1;
  double most = 0;
  for (const SimRankResult& rank : run_sim_job(job).ranks) most = std::max(most, rank.steps.at(0).bytes_sent);
  return most;
}

TEST(GsSgd, BytesPerWorkerGrowWithTheLogarithmOfTheWorkersAlongTheTreeAndAreBoundedDirectly) {
  const Words set = {"density=0.05", "rows=3", "columns=16", "dense_below=3"};
  const double table = 3 * 16, candidates = 2 * 20;
  for (const int workers : {2, 3, 4, 5, 8, 16, 32, 64, 100, 128, 256}) {
    const double part = (workers - 1.0) / workers, small = 2 * part * 4 * 2;
    EXPECT_NEAR(most_sent(set + Words{"topology=tree"}, workers, {400, 2}),
                std::bit_width(static_cast<unsigned>(workers - 1)) * 4 * (table + candidates) + small, 1e-6)
        << workers;
    const double direct = most_sent(set + Words{"topology=direct"}, workers, {400, 2});
    // Shares are rounded up to whole values, and records to words; each has a head or a scale of 4 bytes.
    EXPECT_GE(direct, part * (2 * table + 1.125 * candidates + 20) + small - 1e-6) << workers;
    EXPECT_LE(direct, part * (2 * table + 1.125 * candidates + 20) + small + 44.0 * workers) << workers;
  }
}

TEST(GsSgd, AStepTakesAtMostAnEighthOfADenseOnesBytesByDefault) {
  for (const int workers : {2, 4, 16}) {
    const double dense = 2.0 * (workers - 1) / workers * 4 * 100'100;
    EXPECT_LT(most_sent({"topology=direct"}, workers, {100'000, 100}), dense / 8);
    const FlatModel model({{"large", 100'000}, {"small", 100}});
    const SketchPlan plan({}, model, ValueFormat::kInt8);
    const auto widest = plan.with_columns(plan.most_columns);
    EXPECT_GT(widest.columns, 3 * plan.k);
    EXPECT_LT(most_sent({"topology=direct", fmt::format("columns={}", widest.columns)}, workers, {100'000, 100}),
              1.01 * dense / 8);
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

TEST(GsSgd, RefusesTablesThatDoNotFit) {
  for (const std::string bad : {"rows=4", "columns=100"}) {
    EXPECT_THROW(Registry::builtin().configure("gs", {bad}).make(), ConfigError) << bad;
    EXPECT_THROW(Registry::builtin().configure("sketched", {bad}).make(), ConfigError) << bad;
  }
}

}  // namespace
}  // namespace slipstream::oracle
