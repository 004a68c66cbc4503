// SPDX-License-Identifier: Apache-2.0
#include "strategy/gtopk_sgd.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <numeric>

#include "oracle/gtopk_sgd_oracle.h"
#include "oracle/simulated.h"
#include "oracle/sync_sgd_oracle.h"

namespace slipstream::oracle {
namespace {

constexpr std::int64_t kSteps = 40;
constexpr std::size_t kSize = Problem{}.size;

std::string density(std::size_t k) {
  return fmt::format("density={}", (static_cast<double>(k) + 0.5) / static_cast<double>(kSize));
}

TEST(GtopkSgdOracle, EveryStepOfEveryRankIsThePapers) {
  for (int workers : {1, 2, 3, 4, 7}) {
    for (const auto& [name, rule] : direction_rules()) {
      for (std::size_t k : {1, 3, 10}) {
        for (const bool published : {false, true}) {
          const std::vector<std::string> set = {density(k), published ? "putback=published" : "putback=conservative"};
          EXPECT_LT(distance(simulate({}, rule, workers, kSteps, "gtopk", set),
                             gtopk_sgd({}, rule, workers, kSteps, k, published)),
                    kRounding)
              << name << ", P=" << workers << ", k=" << k << ", " << set[1];
        }
      }
    }
  }
}

TEST(GtopkSgdOracle, OraclesTellRulesApart) {
  const Rule rule{.momentum = 0.9};
  const Course run = gtopk_sgd({}, rule, 4, kSteps, 3, false);
  EXPECT_GT(distance(run, gtopk_sgd({}, rule, 4, kSteps, 3, true)), 100 * kRounding);
  EXPECT_GT(distance(run, gtopk_sgd({}, rule, 4, kSteps, 2, false)), 100 * kRounding);
  EXPECT_GT(distance(run, topk_sgd({}, rule, 4, kSteps, 3)), 100 * kRounding);
}

TEST(GtopkSgd, SendingEverythingEqualsSyncSgdToRounding) {
  for (const auto& [name, rule] : lasting_rules()) {
    for (int workers : {1, 2, 3, 7}) {
      const Course run = simulate({}, rule, workers, kSteps, "gtopk", {"density=1"});
      EXPECT_LT(distance(run, simulate({}, rule, workers, kSteps, "ssgd")), kRounding) << name << ", P=" << workers;
    }
  }
}

TEST(GtopkSgd, OneWorkerIsTopkBitForBit) {
  const Rule rule{.momentum = 0.9, .weight_decay = 0.01};
  EXPECT_EQ(simulate({}, rule, 1, kSteps, "gtopk", {density(3)}), simulate({}, rule, 1, kSteps, "topk", {density(3)}));
}

// Every rank's gradient in step 0 is one entry.
class OneEntryEach final : public ToyTask {
 public:
  explicit OneEntryEach(std::vector<std::pair<std::size_t, float>> entries) : entries_(std::move(entries)) {}

  std::vector<Parameter> parameters() const override { return {{"all", 3}}; }
  void init(std::span<float> weights, std::uint64_t) const override { std::fill(weights.begin(), weights.end(), 0.0F); }
  double gradient(std::span<const float>, std::span<float> grads, int rank, std::int64_t) const override {
    const auto& [index, value] = entries_[static_cast<std::size_t>(rank)];
    grads[index] = value;
    return 0;
  }

 private:
  std::vector<std::pair<std::size_t, float>> entries_;
};

struct Books {
  std::vector<float> applied;  // P × the update
  double total = 0;            // of what was applied and what is owed
};

Books books_after_one_step(const std::string& putback) {
  SimJobOptions job;
  job.world.ranks = 4;
  job.task = std::make_shared<OneEntryEach>(std::vector<std::pair<std::size_t, float>>{{0, 5}, {1, 4}, {1, 6}, {2, 3}});
  job.make_strategy = Registry::builtin().configure("gtopk", {"density=0.34", putback}).make;
  job.optimizer = {.lr = 1, .momentum = 0};
  job.steps = 2;
  job.stop_after = 1;
  const SimJobResult result = run_sim_job(job);
  Books books;
  for (const float w : result.ranks[0].weights) books.applied.push_back(-4 * w);
  books.total = std::accumulate(books.applied.begin(), books.applied.end(), 0.0);
  for (const StateArchive& state : result.saved->ranks) {
    const auto& residual = std::get<std::vector<float>>(state.entries().at("strategy/residual"));
    books.total = std::accumulate(residual.begin(), residual.end(), books.total);
  }
  return books;
}

TEST(GtopkSgd, ThePublishedPutBackLosesWhatAnInnerRankDropped) {  // GTK-1
  const Books books = books_after_one_step("putback=published");
  EXPECT_EQ(books.applied, (std::vector<float>{0, 6, 0}));
  EXPECT_EQ(books.total, 14) << "of 18";
}

TEST(GtopkSgd, WhatIsDroppedIsOwedByTheRankThatDroppedIt) {  // GTK-2
  const Books books = books_after_one_step("putback=conservative");
  EXPECT_EQ(books.applied, (std::vector<float>{0, 6, 0}));
  EXPECT_EQ(books.total, 18);
}

// Also topk and lags, which look only at what they selected.
TEST(GtopkSgd, RefusesAGradientThatIsNotFiniteByItsLayersName) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (const auto& [name, set] : std::vector<std::pair<std::string, std::vector<std::string>>>{
             {"gtopk", {}}, {"topk", {}}, {"topk", {"wire=int8"}}, {"lags", {"adaptive=false"}}, {"lags", {}}}) {
      SimJobOptions job;
      job.world.ranks = 4;
      job.task =
          std::make_shared<OneEntryEach>(std::vector<std::pair<std::size_t, float>>{{0, 5}, {1, bad}, {1, 6}, {2, 3}});
      job.make_strategy = Registry::builtin().configure(name, set).make;
      try {
        run_sim_job(job);
        FAIL() << name << " took " << bad;
      } catch (const DivergedError& refusal) {
        EXPECT_NE(std::string(refusal.what()).find("'all' on rank 1"), std::string::npos) << refusal.what();
      }
    }
  }
}

TEST(GtopkSgd, SendsAtMostTheLogarithmOfTheWorkersInRecords) {
  const FlatModel model({{"all", 100'000}});
  const GtopkSgdOptions options;
  const double record = GtopkSgd::bytes_sent(options, {model, 2, 0, 1});
  for (int log = 1; log <= 8; ++log) {
    const int workers = 1 << log;
    EXPECT_EQ(GtopkSgd::bytes_sent(options, {model, workers, 0, 0}), log * record);
    for (int r = 1; r < workers; ++r) EXPECT_LE(GtopkSgd::bytes_sent(options, {model, workers, 0, r}), log * record);
  }
}

}  // namespace
}  // namespace slipstream::oracle
