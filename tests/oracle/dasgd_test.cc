// SPDX-License-Identifier: Apache-2.0
#include "strategy/dasgd.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <set>

#include "kit/sim.h"
#include "oracle/dasgd_oracle.h"
#include "oracle/simulated.h"
#include "oracle/sync_sgd_oracle.h"

namespace slipstream::oracle {
namespace {

constexpr std::int64_t kSteps = 40;
constexpr std::size_t kSize = Problem{}.size;
using Set = std::vector<std::string>;

Set options(const DaRule& da) {
  const char* state = da.state == 'k' ? "keep" : da.state == 's' ? "scale" : "average";
  Set set = {fmt::format("period={}", da.tau),
             fmt::format("delay={}", da.del),
             fmt::format("warmup_steps={}", da.warmup),
             fmt::format("merge={}", da.additive ? "additive" : "lerp"),
             fmt::format("mix={}", da.xi),
             fmt::format("state={}", state)};
  if (da.k > 0) {
    set.push_back("codec=topk");
    set.push_back(
        fmt::format("density={}", std::min(1.0, (static_cast<double>(da.k) + 0.5) / static_cast<double>(kSize))));
  }
  return set;
}

Course simulated(const Rule& rule, int workers, const DaRule& da, std::int64_t steps = kSteps) {
  return simulate({}, rule, workers, steps, "dasgd", options(da));
}

double off(const Rule& rule, int workers, const DaRule& da) {
  return distance(simulated(rule, workers, da), dasgd({}, rule, workers, kSteps, da));
}

TEST(DaSgdOracle, EveryStepOfEveryRankIsThePapers) {
  for (int workers : {1, 2, 3, 4, 7}) {
    for (const auto& [name, rule] : rules()) {
      for (bool additive : {false, true}) {
        for (std::int64_t del : {1, 2, 4}) {
          EXPECT_LT(off(rule, workers, {.del = del, .additive = additive}), kRounding)
              << name << ", P=" << workers << ", delay " << del << (additive ? ", additive" : ", lerp");
        }
      }
    }
  }
}

TEST(DaSgdOracle, HoldsForAnyPeriodDelayWarmupAndMix) {
  const Rule rule{.momentum = 0.9, .weight_decay = 0.01};
  for (bool additive : {false, true}) {
    for (std::int64_t tau : {1, 2, 3, 7, 39, 100}) {
      for (std::int64_t del : {0L, 1L, tau / 2, tau}) {
        for (std::int64_t warmup : {0, 5, 40}) {
          const DaRule da{.tau = tau, .del = del, .warmup = warmup, .additive = additive, .xi = 0.6};
          EXPECT_LT(off(rule, 3, da), kRounding) << "period " << tau << ", delay " << del << ", warm-up " << warmup;
        }
      }
    }
  }
}

TEST(DaSgdOracle, TheOptimizersStateIsKeptScaledOrAveraged) {
  for (const auto& [name, rule] : rules()) {
    if (rule.momentum == 0) continue;
    for (int workers : {1, 2, 3, 7}) {
      for (char state : {'k', 's', 'a'}) {
        for (bool additive : {false, true}) {
          EXPECT_LT(off(rule, workers, {.del = 2, .additive = additive, .state = state}), kRounding)
              << name << ", P=" << workers << ", state " << state;
        }
      }
    }
  }
}

TEST(DaSgdOracle, TheLargestDifferencesToTheSharedAnchorAreSentAndTheRestIsOwed) {
  for (const auto& [name, rule] : rules()) {
    for (int workers : {1, 2, 3, 4, 7}) {
      for (std::size_t k : {1, 3, 11}) {
        for (std::int64_t del : {0, 1, 4}) {
          EXPECT_LT(off(rule, workers, {.del = del, .k = k}), kRounding)
              << name << ", P=" << workers << ", k=" << k << ", delay " << del;
        }
      }
    }
  }
  EXPECT_LT(off({.momentum = 0.9}, 3, {.tau = 3, .del = 2, .warmup = 5, .k = 3}), kRounding) << "after a warm-up";
}

TEST(DaSgdOracle, OraclesTellRulesApart) {
  const Rule rule{.momentum = 0.9};
  const DaRule usual{.del = 2};
  const Course run = dasgd({}, rule, 3, kSteps, usual);
  for (const DaRule& other : {DaRule{.del = 1}, DaRule{.tau = 5, .del = 2}, DaRule{.del = 2, .additive = false},
                              DaRule{.del = 2, .warmup = 1}, DaRule{.del = 2, .state = 's'},
                              DaRule{.del = 2, .state = 'a'}, DaRule{.del = 2, .k = 3}}) {
    EXPECT_GT(distance(run, dasgd({}, rule, 3, kSteps, other)), 100 * kRounding);
  }
  EXPECT_GT(distance(dasgd({}, rule, 3, kSteps, {.additive = false, .xi = 0.25}),
                     dasgd({}, rule, 3, kSteps, {.additive = false, .xi = 0.3})),
            100 * kRounding);
}

// DA-1
TEST(DaSgd, AveragingEveryStepWithoutDelayIsSyncSgdToRounding) {
  for (int workers : {2, 3, 7}) {
    const Course run = simulated({}, workers, {.tau = 1, .del = 0, .additive = false, .xi = 0});
    EXPECT_LT(distance(run, simulate({}, {}, workers, kSteps, "ssgd")), kRounding) << workers;
  }
}

// DA-1b
TEST(DaSgd, WithoutDelayItIsLocalSgdBitForBit) {
  for (const auto& [name, rule] : rules()) {
    for (int workers : {2, 3, 7}) {
      for (std::int64_t tau : {1, 3, 7}) {
        const Course local =
            simulate({}, rule, workers, kSteps, "local", {fmt::format("period={}", tau), "warmup_steps=2"});
        for (bool additive : {false, true}) {
          EXPECT_EQ(simulated(rule, workers, {.tau = tau, .del = 0, .warmup = 2, .additive = additive, .xi = 0}), local)
              << name << ", P=" << workers << ", period " << tau << (additive ? ", additive" : ", lerp");
        }
      }
    }
  }
}

// DA-2
TEST(DaSgd, OneWorkerWithTheAdditiveMergeIsSerialSgdAndWithLerpIsNot) {
  for (const auto& [name, rule] : rules()) {
    const Course serial = simulate({}, rule, 1, kSteps, "ssgd");
    for (std::int64_t del : {0, 1, 4}) {
      EXPECT_LT(distance(simulated(rule, 1, {.del = del}), serial), 1e-6) << name << ", delay " << del;
      EXPECT_LT(distance(simulated(rule, 1, {.del = del, .k = kSize}), serial), 1e-6) << name << ", delay " << del;
    }
    EXPECT_GT(distance(simulated(rule, 1, {.del = 1, .additive = false}), serial), 1e-3) << name;
  }
}

// A gradient that is always 1.
class Slope final : public ToyTask {
 public:
  std::vector<Parameter> parameters() const override { return {{"w", 3}}; }
  void init(std::span<float> weights, std::uint64_t) const override { std::fill(weights.begin(), weights.end(), 4.0F); }
  double gradient(std::span<const float>, std::span<float> grads, int, std::int64_t) const override {
    std::fill(grads.begin(), grads.end(), 1.0F);
    return 0;
  }
};

// How far down the slope a run gets, in steps; all numbers are exact in single precision.
double progress(const DaRule& da, std::int64_t steps) {
  SimJobOptions job;
  job.world.ranks = 4;
  job.task = std::make_shared<Slope>();
  job.make_strategy = Registry::builtin().configure("dasgd", options(da)).make;
  job.optimizer = {.lr = 0.125, .momentum = 0};
  job.steps = steps;
  float w = 0;
  job.on_step_end = [&](int, std::int64_t, std::span<const float> weights) { w = weights[0]; };
  run_sim_job(job);
  return (4.0 - w) / 0.125;
}

// DA-3
TEST(DaSgd, LerpDiscardsItsShareOfTheDelayInEveryRoundAndAdditiveDiscardsNothing) {
  for (const auto& [tau, del, xi] : std::vector<std::tuple<std::int64_t, std::int64_t, double>>{
           {4, 1, 0.25}, {4, 2, 0.5}, {8, 3, 0.25}, {4, 4, 0}}) {
    for (std::int64_t rounds : {1, 2, 5}) {
      const auto whole = static_cast<double>(rounds * tau);
      const DaRule lerp{.tau = tau, .del = del, .additive = false, .xi = xi};
      EXPECT_EQ(progress(lerp, rounds * tau), whole - static_cast<double>((rounds - 1) * del) * (1 - xi))
          << tau << ' ' << del << ' ' << xi << ", " << rounds << " rounds";
      EXPECT_EQ(progress({.tau = tau, .del = del}, rounds * tau), whole);
    }
  }
}

// The weights of all ranks before and after the merge at step t, from a run with that merge and one that ends before.
struct Merge {
  Ranks before, after, snap;
};
Merge merge_at(std::int64_t t, const Rule& rule, const DaRule& da, int workers) {
  DaRule never = da;
  never.additive = false;
  never.xi = 1;  // DA-5: as if there were no merges at all
  const Course merged = simulated(rule, workers, da), alone = simulated(rule, workers, never);
  const auto at = [](const Course& run, std::int64_t step) { return run.steps[static_cast<std::size_t>(step)]; };
  return {at(alone, t), at(merged, t), at(alone, t - da.del)};
}

// DA-4
TEST(DaSgd, TheMeanModelMovesByTheSameRule) {
  for (int workers : {2, 3, 7}) {
    const DaRule da{.tau = 8, .del = 3, .additive = false, .xi = 0.25};
    const Merge m = merge_at(10, {.momentum = 0.9}, da, workers);  // the first merge
    EXPECT_LT(distance(Ranks{mean(m.after)}, Ranks{combined(0.25, mean(m.before), 0.75, mean(m.snap))}), kRounding);
  }
}

// DA-5
TEST(DaSgd, KeepingAllOfItsOwnAWorkerTrainsAlone) {
  const Rule rule{.momentum = 0.9};
  const Course run = simulated(rule, 3, {.del = 2, .additive = false, .xi = 1});
  const Course alone = simulate({}, rule, 3, kSteps, "local", {"period=1000"});
  EXPECT_EQ(run, alone);
}

// DA-6
TEST(DaSgd, ALerpWithoutDelayContractsTheSpreadByXi) {
  const auto spread = [](const Ranks& all) {
    double largest = 0;
    for (const Vec& w : all) {
      double squares = 0;
      for (std::size_t j = 0; j < w.size(); ++j) squares += std::pow(w[j] - mean(all)[j], 2);
      largest = std::max(largest, std::sqrt(squares));
    }
    return largest;
  };
  for (double xi : {0.25, 0.5, 0.9}) {
    const Merge m = merge_at(7, {.momentum = 0.9}, {.tau = 8, .del = 0, .additive = false, .xi = xi}, 3);
    EXPECT_NEAR(spread(m.after), xi * spread(m.before), kRounding);
    EXPECT_GT(spread(m.before), 0.01);
  }
}

// ID-3: one shared model, stepped with the gradients of the last step, while each worker runs one own step ahead of it
// (OD-SGD, OSP with everything overlapped).
TEST(DaSgd, AdditiveWithPeriodAndDelayOfOneIsOverlappedSgd) {
  for (int workers : {1, 2, 3, 7}) {
    const Problem problem;
    const Rule rule;
    Vec global = problem.start();
    Ranks w(static_cast<std::size_t>(workers), global), last;
    Course expected;
    for (std::int64_t t = 0; t < kSteps; ++t) {
      Ranks g;
      for (std::size_t p = 0; p < w.size(); ++p) g.push_back(problem.gradient(w[p], static_cast<int>(p), t));
      if (!last.empty()) global = combined(1, global, -rule.lr, mean(last));
      for (std::size_t p = 0; p < w.size(); ++p) w[p] = combined(1, global, -rule.lr, g[p]);
      last = g;
      expected.steps.push_back(w);
    }
    expected.end = Ranks(w.size(), mean(w));
    EXPECT_LT(distance(simulated(rule, workers, {.tau = 1, .del = 1}), expected), kRounding) << workers;
  }
}

TEST(DaSgd, CocodIsTheAdditiveMergeWithTheWholePeriodAsDelay) {
  for (const auto& [name, rule] : rules()) {
    EXPECT_EQ(simulate({}, rule, 3, kSteps, "cocod", {"period=5"}), simulated(rule, 3, {.tau = 5, .del = 5})) << name;
  }
}

TEST(DaSgd, IdenticalDataOnAllRanksEqualsOneWorker) {
  const Problem same{.same_data = true};
  const Rule rule{.momentum = 0.9, .nesterov = true};
  const Course one = simulate(same, rule, 1, kSteps, "dasgd", options({.del = 2, .warmup = 5}));
  for (int workers : {2, 4}) {  // sums of equal numbers and their halves are exact
    const Course run = simulate(same, rule, workers, kSteps, "dasgd", options({.del = 2, .warmup = 5}));
    EXPECT_EQ(run.end, Ranks(static_cast<std::size_t>(workers), one.end[0])) << workers;
  }
}

// What conformance asks of every strategy, here for combinations it does not try: each codec with fixed delays.
class Combination : public testing::TestWithParam<Set> {};

INSTANTIATE_TEST_SUITE_P(DaSgd, Combination,
                         testing::Values(Set{"codec=topk", "density=0.2", "delay=1"}, Set{"codec=topk", "delay=4"},
                                         Set{"codec=half", "delay=2"}, Set{"codec=half", "delay=0"},
                                         Set{"codec=sketch", "density=0.3", "delay=3"}, Set{"codec=sketch", "delay=0"},
                                         Set{"codec=topk", "delay=2", "warmup_steps=3"},
                                         Set{"state=average", "delay=2"}, Set{"state=average", "merge=lerp", "delay=4"},
                                         Set{"merge=lerp", "delay=2"}, Set{"state=scale", "merge=lerp", "delay=3"}));

TEST_P(Combination, SavedAnywhereAndResumedEqualsUninterrupted) {
  for (int ranks : {1, 2, 3, 7}) {
    const auto job = [&] { return test::sim_job({"dasgd", GetParam()}, ranks); };
    test::Diary whole;
    const auto uninterrupted = test::run_with_diary(job(), whole);
    EXPECT_TRUE(uninterrupted.agreement());
    for (std::int64_t cut = 0; cut <= 13; ++cut) {
      SCOPED_TRACE(fmt::format("P={}, saved after {} steps", ranks, cut));
      auto options = job();
      options.stop_after = cut;
      const auto saved = run_sim_job(options);
      ASSERT_TRUE(saved.saved.has_value());
      options.stop_after.reset();
      options.resume = &*saved.saved;
      test::Diary rest;
      test::expect_same_weights(test::run_with_diary(options, rest), uninterrupted);
      for (const auto& [place, weights] : rest) EXPECT_TRUE(test::same_bits(weights, whole[place]));
    }
  }
}

TEST_P(Combination, SendsTheBytesItsFormulaSays) {
  const auto configured = Registry::builtin().configure("dasgd", GetParam());
  for (int ranks : {1, 2, 3, 7}) {
    for (const std::vector<std::size_t>& layers : {std::vector<std::size_t>{6, 1, 0, 11, 2}, {5000, 3, 40}, {1}, {0}}) {
      auto job = test::sim_job({"dasgd", GetParam()}, ranks);
      job.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = layers});
      const FlatModel model(job.task->parameters());
      const SimJobResult result = run_sim_job(job);
      for (const SimStepRecord& step : result.ranks[0].steps) {
        EXPECT_DOUBLE_EQ(step.bytes_sent, configured.bytes_sent({model, ranks, step.t, 0})) << "step " << step.t;
      }
    }
  }
}

// Gradients that do not depend on the weights, so that what all ranks have learnt is known whatever was merged when.
class Fixed final : public ToyTask {
 public:
  std::vector<Parameter> parameters() const override { return {{"w", kSize}}; }
  void init(std::span<float> weights, std::uint64_t) const override { std::fill(weights.begin(), weights.end(), 0.0F); }
  double gradient(std::span<const float>, std::span<float> grads, int rank, std::int64_t t) const override {
    const Vec g = Problem{}.gradient(Problem{}.start(), rank, t);
    std::transform(g.begin(), g.end(), grads.begin(), [](double x) { return static_cast<float>(x); });
    return 0;
  }
};

// Whatever the codec: the anchor is the same bits everywhere, and together with what is owed nothing is lost. (half
// loses what rounding the sum to 11 bits takes away.)
TEST(DaSgdCodecs, WhatIsNotSentIsOwed) {
  constexpr double kLr = 0.05;
  for (const auto& [codec, tolerance] :
       std::vector<std::pair<std::string, double>>{{"topk", kRounding}, {"sketch", kRounding}, {"half", 0x1.0p-11}}) {
    for (int workers : {1, 2, 3, 7}) {
      for (std::int64_t stop : {3, 4, 6, 8, 10, 31}) {
        SCOPED_TRACE(fmt::format("{}, P={}, {} steps", codec, workers, stop));
        SimJobOptions job;
        job.world.ranks = workers;
        job.task = std::make_shared<Fixed>();
        job.make_strategy =
            Registry::builtin().configure("dasgd", {"codec=" + codec, "density=0.2", "period=4", "delay=3"}).make;
        job.optimizer = {.lr = kLr, .momentum = 0};
        job.steps = stop + 1;
        job.stop_after = stop;
        const SimJobResult result = run_sim_job(job);
        ASSERT_TRUE(result.saved.has_value());
        Vec learnt(kSize), expected(kSize);
        for (int p = 0; p < workers; ++p) {
          const auto& state = result.saved->ranks[static_cast<std::size_t>(p)].entries();
          const auto floats = [&state](const char* name) { return std::get<std::vector<float>>(state.at(name)); };
          EXPECT_EQ(floats("strategy/shared"),
                    std::get<std::vector<float>>(result.saved->ranks[0].entries().at("strategy/shared")));
          const bool pending = std::get<std::int64_t>(state.at("strategy/pending")) != 0;
          const auto w = floats("model/w"), moved = floats("strategy/moved"), owed = floats("strategy/owed");
          for (std::size_t j = 0; j < kSize; ++j) {
            learnt[j] += (w[j] - (pending ? moved[j] : 0.0) + owed[j]) / workers;
            for (std::int64_t t = 0; t < stop; ++t) {
              expected[j] -= kLr * Problem{}.gradient(Problem{}.start(), p, t)[j] / workers;
            }
          }
        }
        EXPECT_LT(distance(Ranks{learnt}, Ranks{expected}), tolerance);
      }
    }
  }
}

// What shared_anchor.h says of the end: the last average takes the weights as they are, and e is not in them.
TEST(DaSgdCodecs, AtTheEndWhatIsOwedIsDroppedAndNothingElse) {
  constexpr double kLr = 0.05;
  constexpr int kWorkers = 3;
  for (const std::string codec : {"topk", "sketch"}) {
    for (std::int64_t steps : {7, 10, 31, 34}) {  // with an average under way (7, 31 + 3 > steps) and without one
      SCOPED_TRACE(fmt::format("{}, {} steps", codec, steps));
      SimJobOptions job;
      job.world.ranks = kWorkers;
      job.task = std::make_shared<Fixed>();
      job.make_strategy =
          Registry::builtin().configure("dasgd", {"codec=" + codec, "density=0.2", "period=4", "delay=3"}).make;
      job.optimizer = {.lr = kLr, .momentum = 0};
      job.steps = steps;
      const SimJobResult finished = run_sim_job(job);
      job.steps = steps + 1;
      job.stop_after = steps;
      const SimJobResult saved = run_sim_job(job);
      Vec end(finished.ranks[0].weights.begin(), finished.ranks[0].weights.end()), owed(kSize), learnt(kSize);
      for (int p = 0; p < kWorkers; ++p) {
        const auto& state = saved.saved->ranks[static_cast<std::size_t>(p)].entries();
        const auto floats = [&state](const char* name) { return std::get<std::vector<float>>(state.at(name)); };
        const bool pending = std::get<std::int64_t>(state.at("strategy/pending")) != 0;
        const auto e = floats("strategy/owed"), moved = floats("strategy/moved");
        for (std::size_t j = 0; j < kSize; ++j) {
          owed[j] += (e[j] - (pending ? moved[j] : 0.0)) / kWorkers;
          for (std::int64_t t = 0; t < steps; ++t) {
            learnt[j] -= kLr * Problem{}.gradient(Problem{}.start(), p, t)[j] / kWorkers;
          }
        }
      }
      EXPECT_LT(distance(Ranks{combined(1, end, 1, owed)}, Ranks{learnt}), kRounding);
      EXPECT_GT(distance(Ranks{end}, Ranks{learnt}), steps > 7 ? 100 * kRounding : 0);
    }
  }
}

// A job whose averages take `steps` steps on the wire. A thousand floats: what else is sent hardly counts.
SimJobOptions job_with_averages_of(double steps, const Set& set) {
  SimJobOptions job;
  job.world.ranks = 2;
  job.compute_seconds = 0.01;
  job.world.link = {0.0, 4000 / (steps * job.compute_seconds)};
  job.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {1000}});
  job.make_strategy = Registry::builtin().configure("dasgd", set).make;
  job.steps = 120;
  return job;
}

std::vector<std::pair<std::int64_t, std::string>> news_of(const SimRankResult& rank) {
  std::vector<std::pair<std::int64_t, std::string>> told;
  for (const SimStepRecord& step : rank.steps) {
    if (!step.news.empty()) told.emplace_back(step.t, step.news);
  }
  return told;
}

// "delay 3 of period 6: …"
struct Chosen {
  std::int64_t delay = 0, period = 0;
  explicit Chosen(const std::string& news) { std::sscanf(news.c_str(), "delay %ld of period %ld", &delay, &period); }
};

// The choice needs the figures of two averages, which it waits for; from then on nobody waits.
TEST(DaSgdAuto, TheDelayIsAsLongAsAnAverageTakesAndThenNobodyWaits) {
  for (const std::string period : {"8", "auto"}) {
    for (const auto& [steps, delay] : std::vector<std::pair<double, int>>{{0.3, 1}, {1.5, 2}, {2.3, 3}, {7.2, 8}}) {
      const SimJobResult result = run_sim_job(job_with_averages_of(steps, {"period=" + period}));
      for (const SimRankResult& rank : result.ranks) {
        const auto told = news_of(rank);
        ASSERT_EQ(told.size(), 1U) << steps;
        EXPECT_EQ(Chosen(told[0].second).delay, delay) << told[0].second;
        EXPECT_EQ(Chosen(told[0].second).period, period == "8" ? 8 : std::max(4, 2 * delay)) << told[0].second;
        for (const SimStepRecord& step : rank.steps) {
          EXPECT_TRUE(step.t <= told[0].first || step.exposed_seconds < 1e-4) << steps << ", step " << step.t;
        }
        EXPECT_LE(told[0].first, 3 * std::stoi(period == "8" ? "8" : "4")) << "after three averages";
      }
    }
  }
}

TEST(DaSgdAuto, FollowsALinkThatChanges) {
  for (const std::string period : {"8", "auto"}) {
    auto job = job_with_averages_of(2.3, {"period=" + period});
    job.steps = 300;
    job.world.faults = {Fault::slow_rank(1, 2.3, FaultPoint::at_step(60), FaultPoint::at_step(150))};
    const SimJobResult result = run_sim_job(job);
    const auto told = news_of(result.ranks[0]);
    EXPECT_EQ(told, news_of(result.ranks[1]));
    ASSERT_EQ(told.size(), 3U) << period;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(Chosen(told[i].second).delay, i == 1 ? 6 : 3) << told[i].second;
      EXPECT_EQ(Chosen(told[i].second).period, period == "8" ? 8 : i == 1 ? 12 : 6) << told[i].second;
    }
    EXPECT_LT(told[1].first, 60 + 5 * 8) << "a slower link counts after two averages";
    EXPECT_LT(told[2].first, 150 + 5 * 12) << "a faster one after three";
    EXPECT_TRUE(result.agreement());
  }
}

// Slower computing is, in steps, a faster link.
TEST(DaSgdAuto, FollowsTheComputing) {
  for (const auto& [compute_s, delay] : std::vector<std::pair<double, int>>{{0.005, 5}, {0.01, 3}, {0.04, 1}}) {
    auto job = job_with_averages_of(2.3, {});
    job.compute_seconds = compute_s;
    const auto told = news_of(run_sim_job(job).ranks[0]);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(Chosen(told[0].second).delay, delay) << told[0].second;
  }
}

// Rank 2 computes three times as long. The others wait for it whatever the delay is, and that is not the wire's fault.
TEST(DaSgdAuto, AStragglerMakesTheDelayNoLonger) {
  auto job = job_with_averages_of(1.5, {});
  job.world.ranks = 3;
  job.compute_factors = {1, 1, 3};
  const SimJobResult result = run_sim_job(job);
  const auto told = news_of(result.ranks[0]);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(Chosen(told[0].second).delay, 1) << told[0].second;
  for (const SimStepRecord& step : result.ranks[2].steps) {
    EXPECT_TRUE(step.t <= told[0].first || step.exposed_seconds < 1e-4) << "the slowest waits for nobody";
  }
}

TEST(DaSgdAuto, AWorkerAloneTrainsAsIfThereWereNoAverages) {
  for (const auto& [name, rule] : rules()) {
    for (const Set& set : {Set{}, Set{"period=3"}, Set{"merge=lerp"}, Set{"codec=topk"}}) {
      EXPECT_EQ(simulate({}, rule, 1, kSteps, "dasgd", set), simulate({}, rule, 1, kSteps, "ssgd")) << name;
    }
  }
}

// Periods and delays are whatever the clock says; with them the run must be the paper's.
TEST(DaSgdAuto, WithThePeriodsAndDelaysItChoseEveryStepIsThePapers) {
  const Rule rule{.momentum = 0.9};
  std::set<std::int64_t> delays, periods;
  for (const std::string period : {"6", "auto"}) {
    for (const auto& [merge, codec] : std::vector<std::pair<std::string, std::string>>{
             {"merge=lerp", "codec=dense"}, {"merge=additive", "codec=dense"}, {"merge=additive", "codec=topk"}}) {
      for (int workers : {2, 3, 7}) {
        SimJobOptions job;
        job.world.ranks = workers;
        job.world.link = {0.0, 40 * 44 / 0.05};  // an average takes about a fifth of a step …
        for (int k = 0; k < 8; ++k) {            // … and then ever more steps, and fewer again
          job.world.faults.push_back(Fault::slow_rank(
              0, 1 + 12.0 * (k < 4 ? k : 8 - k), FaultPoint::at_step(50 * k + 50), FaultPoint::at_step(50 * k + 100)));
        }
        job.task = std::make_shared<ProblemTask>(Problem{});
        job.make_strategy =
            Registry::builtin().configure("dasgd", {"period=" + period, merge, codec, "density=0.3"}).make;
        job.optimizer = optimizer_of(rule);
        job.steps = 500;
        Course run;
        run.steps.assign(500, Ranks(static_cast<std::size_t>(workers)));
        job.on_step_end = [&run](int rank, std::int64_t t, std::span<const float> weights) {
          run.steps[static_cast<std::size_t>(t)][static_cast<std::size_t>(rank)].assign(weights.begin(), weights.end());
        };
        const SimJobResult result = run_sim_job(job);
        for (const SimRankResult& rank : result.ranks) {
          run.end.emplace_back(rank.weights.begin(), rank.weights.end());
          EXPECT_EQ(news_of(rank), news_of(result.ranks[0])) << "all ranks choose alike";
        }
        DaRule da{.tau = period == "6" ? 6 : 4,
                  .del = 1,
                  .additive = merge == "merge=additive",
                  .k = codec == "codec=topk" ? 3U : 0U};
        for (const auto& [t, news] : news_of(result.ranks[0])) {
          const Chosen chosen(news);
          delays.insert(da.changes[t] = chosen.delay);
          periods.insert(da.periods[t] = chosen.period);
        }
        EXPECT_GE(da.changes.size(), 3U);
        // What is owed remembers its rounding errors, and these are 500 steps.
        EXPECT_LT(distance(run, dasgd({}, rule, workers, 500, da)), 4 * kRounding)
            << merge << ' ' << codec << ' ' << workers << ", period " << period;
      }
    }
  }
  EXPECT_GE(delays.size(), 4U) << "the links of this test do not ask for different delays";
  EXPECT_GE(periods.size(), 4U);
}

// An average moves no weight of the mean model, whichever period and delay are in force: with plain SGD the mean over
// ranks is always the start less the mean gradients, also in the steps in which the period changes.
TEST(DaSgdAuto, TheMeanModelIsUnmovedByMergesWhileThePeriodChanges) {
  auto job = job_with_averages_of(2.3, {});
  job.world.ranks = 3;
  job.task = std::make_shared<Fixed>();
  job.world.link.bytes_per_s *= static_cast<double>(kSize) / 1000;
  job.world.faults = {Fault::slow_rank(1, 4, FaultPoint::at_step(40), FaultPoint::at_step(120))};
  job.optimizer = {.lr = 0.05, .momentum = 0};
  job.steps = 300;
  std::vector<Vec> means(300, Vec(kSize));
  job.on_step_end = [&](int, std::int64_t t, std::span<const float> weights) {
    for (std::size_t j = 0; j < kSize; ++j) means[static_cast<std::size_t>(t)][j] += weights[j] / 3;
  };
  const SimJobResult result = run_sim_job(job);
  EXPECT_GE(news_of(result.ranks[0]).size(), 3U);
  Vec expected(kSize);
  for (std::int64_t t = 0; t < 300; ++t) {
    for (int p = 0; p < 3; ++p) {
      const Vec g = Problem{}.gradient(Problem{}.start(), p, t);
      for (std::size_t j = 0; j < kSize; ++j) expected[j] -= 0.05 * g[j] / 3;
    }
    EXPECT_LT(distance(Ranks{means[static_cast<std::size_t>(t)]}, Ranks{expected}), 4 * kRounding) << "step " << t;
  }
}

TEST(DaSgdAuto, ASingleHiccupChangesNothing) {
  auto job = job_with_averages_of(2.3, {"period=8"});
  job.world.faults = {Fault::slow_rank(1, 2.3, FaultPoint::at_step(55), FaultPoint::at_step(56))};
  EXPECT_EQ(news_of(run_sim_job(job).ranks[0]).size(), 1U);
}

TEST(DaSgdAuto, SaysWhichPeriodWouldHideAnAverageThatTakesLonger) {
  const SimJobResult result = run_sim_job(job_with_averages_of(5.3, {"period=4"}));
  const auto told = news_of(result.ranks[0]);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].second.find("delay 4 of period 4"), std::string::npos) << told[0].second;
  EXPECT_NE(told[0].second.find("period=6 or period=auto would hide it"), std::string::npos) << told[0].second;
  double waited = 0;  // an average that is late makes the step wait, and that is counted
  for (const SimStepRecord& step : result.ranks[0].steps) waited += step.exposed_seconds;
  EXPECT_NEAR(waited, (29 * (5.3 - 4) + 3 * (4 - 1)) * 0.01, 0.02);  // the first three with a delay of 1
}

TEST(DaSgdAuto, SavedAndResumedItGoesOnAndRanksAgree) {
  for (std::int64_t cut = 0; cut <= 40; ++cut) {
    for (const std::string period : {"4", "auto"}) {
      auto job = job_with_averages_of(2.3, {"period=" + period});
      job.steps = 60;
      job.stop_after = cut;
      const SimJobResult saved = run_sim_job(job);
      ASSERT_TRUE(saved.saved.has_value());
      job.stop_after.reset();
      job.resume = &*saved.saved;
      const SimJobResult resumed = run_sim_job(job);
      EXPECT_TRUE(resumed.agreement()) << cut;
      if (cut < 20) continue;  // the choice was made before: it is in force without being measured again
      double exposed = 0;
      for (const SimStepRecord& step : resumed.ranks[0].steps) exposed += step.exposed_seconds;
      EXPECT_LT(exposed, 1e-3) << cut;
    }
  }
}

TEST(DaSgd, RefusesWhatMakesNoSense) {
  const auto refusal = [](const Set& set) -> std::string {
    try {
      Registry::builtin().configure("dasgd", set).make();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal({"period=4", "delay=5"}).find("delay <= period"), std::string::npos);
  EXPECT_NE(refusal({"codec=topk", "merge=lerp"}).find("merge=additive"), std::string::npos);
  EXPECT_NE(refusal({"codec=half", "state=average"}).find("state=keep"), std::string::npos);
  EXPECT_EQ(refusal({"period=4", "delay=4"}), "");
  try {
    simulate({}, {}, 2, 1, "dasgd", {"state=scale"});
    ADD_FAILURE() << "a state that does not exist was scaled";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("optimizer="), std::string::npos);
  }
}

}  // namespace
}  // namespace slipstream::oracle
