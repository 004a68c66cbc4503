// SPDX-License-Identifier: Apache-2.0
#include "strategy/sketch_memory.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <slipstream/strategy/registry.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "sim/sim_job.h"
#include "sim/sim_world.h"
#include "topology/pick_exchange.h"

namespace slipstream {
namespace {

using Vec = std::vector<double>;

// Gradients of which few entries are large, partly common to all workers.
float gradient_at(int rank, std::size_t i, std::uint64_t seed) {
  Rng common(5, i, seed), own(6, i, seed, static_cast<std::uint64_t>(rank));
  const double scale = std::exp(0.8 * common.normal());
  return static_cast<float>(scale * (common.normal() + own.normal()));
}

std::vector<std::size_t> largest(const Vec& v, std::size_t k) {
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return std::abs(v[a]) > std::abs(v[b]); });
  order.resize(k);
  return order;
}

struct Looked {
  double recall = 0;
  std::size_t columns = 0, k = 0;
};

// One step of `ranks` workers at step 20, where the recall is looked at; and what it is, by its definition.
Looked look(int ranks, std::size_t d, SketchOptions options, double* truth = nullptr, std::uint64_t seed = 1) {
  std::vector<Looked> seen(static_cast<std::size_t>(ranks));
  double did = 0;
  std::size_t k = 0, chosen = 0;
  SimWorldOptions world;
  world.ranks = ranks;
  SimWorld(world).run([&](SimPort& port) {
    FlatModel model({{"all", d}});
    const auto optimizer = make_optimizer({.lr = 1, .momentum = 0}, d, OptimizerUse::kDirections);
    Step s{20, model, *optimizer, port};
    for (std::size_t i = 0; i < d; ++i) model.grads()[i] = gradient_at(port.rank(), i, seed);
    SketchMemory memory(options, model, 0, ValueFormat::kFp32);
    memory.add(s, {.count = d, .end_slot = 1});
    port.sum(memory.table()).wait();
    const auto& found = memory.choose(s.t);
    std::vector<float> sent(found.size());
    memory.leaving(s, found, sent);
    PickExchange exchange;
    Sparse lost;
    const Sparse picked = exchange.pick(port, sent, memory.plan().k, ValueFormat::kFp32, Way::kOwners, lost);
    memory.follow_recall(s, picked, memory.plan().most_columns);
    memory.apply(s, picked, sent, lost);
    seen[static_cast<std::size_t>(port.rank())] = {memory.recall(), memory.columns(), memory.plan().k};
    if (port.rank() > 0) return;
    k = memory.plan().k;
    chosen = memory.plan().chosen;
    for (const float x : picked.values) did += static_cast<double>(x) * static_cast<double>(x);
  });
  for (const Looked& other : seen) {
    EXPECT_EQ(other.recall, seen[0].recall);
    EXPECT_EQ(other.columns, seen[0].columns);
  }
  if (truth == nullptr) return seen[0];
  Vec sketched(d), exact(d);
  for (int r = 0; r < ranks; ++r) {
    Vec own(d);
    for (std::size_t i = 0; i < d; ++i) own[i] = gradient_at(r, i, seed);
    for (const std::size_t i : largest(own, k)) sketched[i] += own[i];
    for (std::size_t i = 0; i < d; ++i) exact[i] += own[i];
  }
  Vec could;
  for (const std::size_t i : largest(sketched, chosen)) could.push_back(exact[i]);
  double energy = 0;
  for (const std::size_t n : largest(could, k)) energy += could[n] * could[n];
  *truth = did / energy;
  return seen[0];
}

TEST(SketchMemory, TheRecallIsTheShareOfWhatATableWithoutCollisionsWouldFind) {
  double truth = 0;
  const double sampled_whole = look(4, 8000, {}, &truth).recall;  // a sample of all coordinates
  EXPECT_NEAR(sampled_whole, truth, 1e-5);
  EXPECT_GT(truth, 0.3);
  EXPECT_LT(truth, 0.99);
  double ratio = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) ratio += look(4, 50'000, {}, &truth, seed).recall / truth / 8;
  EXPECT_NEAR(ratio, 1.0, 0.1) << "a sample of one in three";
}

TEST(SketchMemory, AWiderTableFindsMore) {
  const auto with = [](std::size_t columns) {
    SketchOptions options;
    options.local = 1;
    double truth = 0;
    options.columns = static_cast<std::int64_t>(columns);
    look(4, 20'000, options, &truth);
    return truth;
  };
  const double narrow = with(208), wide = with(832), wider = with(1600);
  EXPECT_GT(wide, 1.05 * narrow);
  EXPECT_GE(wider, wide);
  EXPECT_GT(wider, 0.9);
}

TEST(SketchMemory, ColumnsFollowTheRecall) {
  SketchOptions options;
  const auto columns = [&](double recall) {
    options.recall = recall;
    return look(4, 20'000, options).columns;
  };
  EXPECT_EQ(columns(0.1), 400U) << "k = 400 is the least";
  EXPECT_EQ(columns(1.0), 592U) << "wider by half, in whole blocks";
  options.columns = 64;
  EXPECT_EQ(look(4, 20'000, options).columns, 64U);
  EXPECT_EQ(look(4, 20'000, options).recall, 0.0) << "nobody looked";
}

TEST(SketchPlan, BoundsTheTableByTheBytesOfADenseStep) {
  const FlatModel model({{"weights", 1'000'000}, {"bias", 4095}, {"more", 500'000}});
  for (const ValueFormat format : {ValueFormat::kFp32, ValueFormat::kBf16}) {
    const SketchPlan plan({}, model, format);
    EXPECT_EQ(plan.coordinates, 1'500'000U);
    EXPECT_EQ(plan.small_count, 4095U);
    EXPECT_EQ(plan.k, 30'000U);
    EXPECT_EQ(plan.chosen, 60'000U);
    EXPECT_EQ(plan.shape.columns, 30'000U);
    EXPECT_EQ(plan.least_columns, 30'000U);
    const double width = format == ValueFormat::kFp32 ? 4 : 2;
    const double bytes = 2 * width * 3 * static_cast<double>(plan.most_columns) + width * 90'000 + 7'500 + 8 * 4095;
    EXPECT_LT(bytes, static_cast<double>(model.count()));
    EXPECT_GT(bytes, 0.99 * static_cast<double>(model.count()));
  }
  EXPECT_EQ(SketchPlan({}, model, ValueFormat::kInt8).most_columns, 120'000U) << "4 k, where bytes allow more";
}

TEST(SketchPlan, BoundsATableThatGoesToEverybodyByTheSameBytes) {
  const FlatModel model({{"weights", 1'000'000}, {"bias", 4095}, {"more", 500'000}});
  const SketchPlan plan({}, model, ValueFormat::kInt8);
  const double dense = 8.0 * static_cast<double>(model.count());
  EXPECT_EQ(plan.most_columns_to_everybody(2), plan.most_columns);
  for (const int ranks : {4, 7}) {
    const auto columns = static_cast<double>(plan.most_columns_to_everybody(ranks));
    EXPECT_LT(columns, static_cast<double>(plan.most_columns));
    const double bytes = ranks * (3 * columns + 60'000 * (1 + 4.0 / 256) + 4 * 4095);
    EXPECT_LT(bytes, dense / 8 + 4 * ranks);
    EXPECT_GT(bytes, 0.99 * dense / 8);
  }
  EXPECT_LT(plan.most_columns_to_everybody(16), plan.least_columns) << "no table is narrow enough";
}

TEST(SketchPlan, ATableNoSmallerThanTheModelHasACellForEveryCoordinate) {
  const FlatModel model({{"weights", 5000}});
  SketchOptions options;
  options.columns = 1680;
  EXPECT_TRUE(SketchPlan(options, model, ValueFormat::kBf16).shape.identity);
  EXPECT_EQ(SketchPlan(options, model, ValueFormat::kBf16).shape.columns, 5000U);
  options.columns = 1664;
  EXPECT_FALSE(SketchPlan(options, model, ValueFormat::kBf16).shape.identity);
}

// Steps 20 and 120 look; a run that is cut between them goes on as if it had not been.
TEST(SketchMemory, TheWidthSurvivesAResume) {
  const auto job = [] {
    SimJobOptions options;
    options.world.ranks = 3;
    options.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {5000, 3, 6000}});
    options.make_strategy = Registry::builtin().configure("gs", {"topology=direct", "recall=1"}).make;
    options.optimizer = {.lr = 0.05};
    options.steps = 130;
    return options;
  };
  SimJobOptions cut = job();
  cut.stop_after = 60;
  const SimJobResult first = run_sim_job(cut);
  const auto columns = std::get<std::int64_t>(first.saved.value().ranks[0].entries().at("strategy/columns"));
  EXPECT_EQ(columns, 336) << "k = 220 in whole blocks, wider by half";
  SimJobOptions rest = job();
  rest.resume = &first.saved.value();
  const SimJobResult resumed = run_sim_job(rest), whole = run_sim_job(job());
  EXPECT_EQ(resumed.ranks[1].weights, whole.ranks[1].weights);
}

}  // namespace
}  // namespace slipstream
