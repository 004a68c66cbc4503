// SPDX-License-Identifier: Apache-2.0
#include "strategy/osp.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <regex>
#include <set>

#include "oracle/delayed_merge_oracle.h"
#include "oracle/osp_oracle.h"
#include "oracle/simulated.h"
#include "report/news.h"

namespace slipstream::oracle {
namespace {

constexpr std::int64_t kSteps = 30;
constexpr double kGuessRounding = 4 * kRounding;  // a guess's velocity is read off a difference of weights

// The parts of the oracle's problem: its layers, cut into blocks of two weights.
constexpr std::int64_t kBlock = 8;
std::vector<ServerPart> parts_of(int servers) { return ServerClient::plan({0, 4, 5, 5, 11}, servers, kBlock); }

using PartSplit = std::function<bool(std::int64_t t, std::size_t offset)>;  // by a part's first weight

struct Observed {
  Course course;
  std::vector<std::vector<Vec>> known;            // G, by step and rank
  std::vector<std::vector<std::int64_t>> rounds;  // by step and part, at rank 0
};

Observed run(const Problem& problem, const Rule& rule, int workers, const PartSplit& split, const std::string& lgp,
             int servers = 0) {
  const auto P = static_cast<std::size_t>(workers);
  const auto parts = parts_of(servers > 0 ? servers : workers);
  Observed seen;
  seen.course.steps.assign(kSteps, Ranks(P));
  seen.known.assign(kSteps, Ranks(P));
  seen.rounds.resize(kSteps);
  static thread_local Osp* mine;  // every simulated rank has a thread
  SimJobOptions job;
  job.world.ranks = workers;
  job.servers = servers;
  job.task = std::make_shared<ProblemTask>(problem);
  OspOptions options;
  options.block_bytes = kBlock;
  options.lgp = lgp;
  const Osp::Split by_part = [&parts, split](std::int64_t t, std::size_t count) {
    std::vector<bool> in_u(count);
    for (std::size_t p = 0; p < count; ++p) in_u[p] = split(t, parts[p].offset);
    return in_u;
  };
  job.make_strategy = [options, by_part] {
    auto strategy = std::make_unique<Osp>(options, by_part);
    mine = strategy.get();
    return strategy;
  };
  job.optimizer = optimizer_of(rule);
  job.lr = [rule](std::int64_t t) { return rule.lr_at(t); };
  job.steps = kSteps;
  job.on_step_end = [&](int rank, std::int64_t t, std::span<const float> weights) {
    const auto r = static_cast<std::size_t>(rank);
    const auto step = static_cast<std::size_t>(t);
    seen.course.steps[step][r].assign(weights.begin(), weights.end());
    seen.known[step][r].assign(mine->known().begin(), mine->known().end());
    if (rank != 0) return;
    for (std::size_t p = 0; p < mine->parts().size(); ++p) seen.rounds[step].push_back(mine->rounds(p));
  };
  for (const SimRankResult& rank : run_sim_job(job).ranks) {
    seen.course.end.emplace_back(rank.weights.begin(), rank.weights.end());
  }
  return seen;
}

// Splits that move from step to step, by a weight's number; `of_part` asks for the first weight of its part.
bool moving(std::int64_t t, std::size_t offset) { return (offset * 7 + static_cast<std::size_t>(t) * 3) % 5 < 2; }
bool all(std::int64_t, std::size_t) { return true; }
bool none(std::int64_t, std::size_t) { return false; }
bool still(std::int64_t, std::size_t offset) { return offset < 5; }

std::function<bool(std::int64_t, std::size_t)> by_weight(const PartSplit& split, int servers) {
  std::vector<std::size_t> first(Problem{}.size);
  for (const ServerPart& part : parts_of(servers)) {
    for (std::size_t j = 0; j < part.count; ++j) first[part.offset + j] = part.offset;
  }
  return [first, split](std::int64_t t, std::size_t j) { return split(t, first[j]); };
}

TEST(OspOracle, EveryStepOfEveryRankIsTheReconstructions) {
  for (const PartSplit& split : {PartSplit(moving), PartSplit(all), PartSplit(still), PartSplit(none)}) {
    for (const char* lgp : {"off", "plain", "momentum"}) {
      for (int workers : {1, 2, 3, 4, 7}) {
        for (const auto& [name, rule] : server_rules()) {
          const Course expected = osp({}, rule, workers, kSteps, by_weight(split, workers), lgp);
          EXPECT_LT(distance(run({}, rule, workers, split, lgp).course, expected), kGuessRounding)
              << name << ", P=" << workers << ", lgp=" << lgp;
        }
      }
    }
  }
}

TEST(OspOracle, TellsSplitsAndGuessesApart) {
  const Rule rule{.momentum = 0.9};
  const auto course = [&](const PartSplit& split, const char* lgp) {
    return osp({}, rule, 3, kSteps, by_weight(split, 3), lgp);
  };
  EXPECT_GT(distance(course(moving, "momentum"), course(all, "momentum")), 25 * kGuessRounding);
  EXPECT_GT(distance(course(moving, "momentum"), course(still, "momentum")), 25 * kGuessRounding);
  EXPECT_GT(distance(course(all, "momentum"), course(all, "plain")), 25 * kGuessRounding);
  EXPECT_GT(distance(course(all, "plain"), course(all, "off")), 25 * kGuessRounding);
}

// OSP-1
TEST(Osp, WithNothingOverlappedItIsBspBitForBit) {
  for (const auto& [name, rule] : server_rules()) {
    for (int workers : {1, 2, 3, 7}) {
      const Course bsp = simulate({}, rule, workers, kSteps, "bsp");
      EXPECT_EQ(run({}, rule, workers, none, "momentum").course, bsp) << name;
      EXPECT_EQ(simulate({}, rule, workers, kSteps, "osp", {"cap=0"}), bsp) << name;
    }
  }
}

// OSP-2
TEST(Osp, OneWorkerWithoutMomentumIsSerialSgdBitForBitForAnyMovingSplit) {
  for (const Rule& rule : {Rule{}, Rule{.lr_decay = 0.1, .weight_decay = 0.01}}) {
    const Course serial = simulate({}, rule, 1, kSteps, "ssgd");
    for (int servers : {0, 1, 2, 3}) {
      EXPECT_EQ(run({}, rule, 1, moving, "plain", servers).course, serial) << servers;
      EXPECT_EQ(run({}, rule, 1, all, "auto", servers).course, serial) << servers;
    }
  }
}

// OSP-3
TEST(Osp, OneWorkerWithMomentumIsExactOnlyWithTheMomentumAwareGuess) {
  for (bool nesterov : {false, true}) {
    const Rule rule{.momentum = 0.9, .weight_decay = 0.001, .nesterov = nesterov};
    const Course serial = simulate({}, rule, 1, kSteps, "ssgd");
    EXPECT_LT(distance(run({}, rule, 1, moving, "momentum").course, serial), kGuessRounding);
    EXPECT_LT(distance(run({}, rule, 1, moving, "auto").course, serial), kGuessRounding)
        << "auto mirrors the optimizer";
    EXPECT_GT(distance(run({}, rule, 1, moving, "plain").course, serial), 1e-2);
  }
}

// OSP-4
TEST(Osp, IdenticalDataOnAllWorkersEqualsSyncSgdToRounding) {
  const Problem same{.same_data = true};
  for (int workers : {2, 3, 4}) {
    EXPECT_LT(distance(run(same, {}, workers, moving, "plain").course, simulate(same, {}, workers, kSteps, "ssgd")),
              kRounding);
  }
}

// OSP-5
TEST(Osp, TheKnownWeightsAreTheSameBitsOnAllWorkers) {
  const Observed seen = run({}, {.momentum = 0.9}, 3, moving, "momentum");
  for (const auto& ranks : seen.known) {
    EXPECT_EQ(ranks[1], ranks[0]);
    EXPECT_EQ(ranks[2], ranks[0]);
  }
}

// OSP-6
TEST(Osp, EveryPartsVersionAdvancesByOneInEveryStepWhateverItsStage) {
  for (int servers : {0, 1, 2}) {
    const auto parts = parts_of(servers > 0 ? servers : 2);
    const Observed seen = run({}, {}, 2, moving, "plain", servers);
    for (std::size_t t = 0; t < seen.rounds.size(); ++t) {
      for (std::size_t p = 0; p < parts.size(); ++p) {
        const bool under_way = moving(static_cast<std::int64_t>(t), parts[p].offset);
        EXPECT_EQ(seen.rounds[t][p], static_cast<std::int64_t>(t) + (under_way ? 0 : 1)) << "step " << t;
      }
    }
  }
}

// OSP-7
TEST(Osp, PartsThatChangeStageGetEachGradientExactlyOnce) {
  const Rule rule{.lr_decay = 0.1};
  for (int servers : {0, 1, 3}) {
    const Course course = run({}, rule, 3, moving, "plain", servers).course;
    EXPECT_LT(distance(course.end, Ranks(3, sum_of_gradients({}, rule, course, 3))), kRounding);
  }
}

// ID-1, ID-3
TEST(Osp, WithEverythingOverlappedItIsSsdOfPeriodOneAndLocalSgdWithDelayedMerge) {
  for (int workers : {1, 2, 4}) {
    Course course = run({}, {}, workers, all, "plain").course;
    EXPECT_LT(distance(course, simulate({}, {}, workers, kSteps, "ssd", {"period=1", "local=plain", "warmup_steps=0"})),
              kRounding);
    course.end.clear();  // the merge has no end of its own
    EXPECT_LT(distance(course, local_sgd_with_delayed_merge({}, {}, workers, kSteps, 1)), kRounding);
  }
}

// As a user runs it: budget and importance decide.
TEST(Osp, SplitsFollowBudgetAndImportanceAndAreTold) {
  for (const char* budget : {"budget=loss", "budget=measured"}) {
    SimJobOptions job;
    job.world.ranks = 2;
    job.world.link = {0.0001, 1e6};
    job.task = std::make_shared<MlpTask>();
    job.make_strategy = Registry::builtin().configure("osp", {budget, "resplit_every=2", "block_bytes=64"}).make;
    job.optimizer = {.lr = 0.05, .momentum = 0.9};
    job.steps = 60;
    const auto result = run_sim_job(job);
    ASSERT_TRUE(result.agreement());
    std::set<std::string> told;
    for (std::size_t t = 0; t < result.ranks[0].steps.size(); ++t) {
      EXPECT_EQ(result.ranks[1].steps[t].news, result.ranks[0].steps[t].news) << "all ranks decide alike";
      told.insert(result.ranks[0].steps[t].news);
    }
    EXPECT_GT(told.size(), 3U) << budget << ": splits move";
  }
}

// It splits by itself early enough that a short job sees its second stage.
SimJobOptions job_of_its_own(const OptimizerOptions& optimizer, std::int64_t steps, int workers = 2,
                             const std::vector<std::string>& set = {"block_bytes=64"}) {
  SimJobOptions job;
  job.world.ranks = workers;
  job.world.link = {0.0001, 1e6};
  job.task = std::make_shared<MlpTask>();
  job.make_strategy = Registry::builtin().configure("osp", set).make;
  job.optimizer = optimizer;
  job.steps = steps;
  return job;
}

// The number of parts that are overlapped after each step, as the news tell it; none where they are silent about it.
std::vector<int> overlapped_parts(const SimJobResult& result) {
  std::vector<int> parts;
  for (const SimStepRecord& step : result.ranks[0].steps) {
    std::smatch found;
    if (std::regex_search(step.news, found, std::regex("overlaps ([0-9]+) of"))) parts.push_back(std::stoi(found[1]));
  }
  return parts;
}

TEST(Osp, ByItselfItOverlapsPartsAfterItsFirstTenSteps) {
  const auto result = run_sim_job(job_of_its_own({.lr = 0.05, .momentum = 0.9}, 13));
  ASSERT_TRUE(result.agreement());
  ASSERT_FALSE(overlapped_parts(result).empty());
  EXPECT_GT(overlapped_parts(result).front(), 0);
  EXPECT_NE(result.ranks[0].steps[9].news.find("overlaps"), std::string::npos);
  const auto synchronous = run_sim_job(job_of_its_own({.lr = 0.05, .momentum = 0.9}, 13, 2, {"cap=0"}));
  EXPECT_NE(result.ranks[0].weights, synchronous.ranks[0].weights) << "the second stage computes with guesses";
}

TEST(Osp, TellsItsSplitByLayerInTheOrderOfBackward) {
  const auto result = run_sim_job(job_of_its_own({.lr = 0.05, .momentum = 0.9}, 13, 2, {"block_bytes=64"}));
  const std::vector<NewsPiece> pieces = take_apart(result.ranks[0].steps[9].news);
  const NewsPiece& split = pieces.back();
  EXPECT_TRUE(split.text.starts_with("overlaps ")) << split.text;
  std::vector<std::string> layers, told;
  for (const Parameter& parameter : MlpTask().parameters()) layers.insert(layers.begin(), parameter.name);
  int overlapped = 0;
  for (const auto& [layer, what] : split.layers) {
    told.push_back(layer);
    overlapped += what.starts_with("overlapped") ? 1 : 0;
  }
  EXPECT_EQ(told, layers);
  EXPECT_GT(overlapped, 0);
  EXPECT_LE(overlapped, overlapped_parts(result).front());
}

TEST(Osp, TellsHowLongItWaitedForWhatItOverlapped) {
  const auto result = run_sim_job(job_of_its_own({.lr = 0.05, .momentum = 0.9}, 30));
  EXPECT_NE(result.ranks[0].steps[19].news.find("ms a step for overlapped traffic of about"), std::string::npos)
      << result.ranks[0].steps[19].news;
}

TEST(Osp, GoesOnOverlappingAfterAResume) {
  auto job = job_of_its_own({.lr = 0.05, .momentum = 0.9}, 60);
  const auto whole = overlapped_parts(run_sim_job(job));
  ASSERT_FALSE(whole.empty());
  job.stop_after = 25;
  const auto saved = run_sim_job(job);
  ASSERT_TRUE(saved.saved.has_value());
  ASSERT_GT(overlapped_parts(saved).back(), 0);
  job.stop_after.reset();
  job.resume = &*saved.saved;
  for (int parts : overlapped_parts(run_sim_job(job))) EXPECT_GT(parts, 0) << "the wire's rate was forgotten";
}

// One worker's guesses are the truth, whatever its budget chooses.
TEST(Osp, OneWorkerIsSerialTrainingByEveryRule) {
  for (const OptimizerOptions& rule : {OptimizerOptions{.lr = 0.05, .momentum = 0.9},
                                       {.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
                                       {.kind = "adam", .lr = 0.01, .weight_decay = 0.01},
                                       {.kind = "adamw", .lr = 0.01, .weight_decay = 0.1}}) {
    auto job = job_of_its_own(rule, 40, 1);
    job.servers = 1;  // on a wire, so that there is something to overlap
    const auto result = run_sim_job(job);
    ASSERT_FALSE(overlapped_parts(result).empty());
    EXPECT_GT(overlapped_parts(result).front(), 0);
    job.servers = 0;
    job.make_strategy = Registry::builtin().configure("ssgd", {}).make;
    const auto serial = run_sim_job(job);
    for (std::size_t j = 0; j < serial.ranks[0].weights.size(); ++j) {
      EXPECT_NEAR(result.ranks[0].weights[j], serial.ranks[0].weights[j], 2e-5) << rule.kind;
    }
  }
}

TEST(Osp, WithAdamTheGuessIsTheOwnOptimizers) {
  for (const char* kind : {"adam", "adamw"}) {
    const Rule rule{.lr = 0.01, .lr_decay = 0.1, .weight_decay = 0.1, .kind = kind};
    for (int workers : {1, 2, 3}) {
      for (const PartSplit& split : {PartSplit(moving), PartSplit(all)}) {
        const Course expected = osp({}, rule, workers, kSteps, by_weight(split, workers), "adam");
        EXPECT_LT(distance(run({}, rule, workers, split, "auto").course, expected), 3e-4)
            << kind;  // small gradients, and steps of sqrt(P)
        EXPECT_GT(distance(run({}, rule, workers, split, "off").course, expected), 1e-3) << kind;
      }
    }
  }
}

TEST(Osp, AnSgdGuessOfAdamIsRefused) {
  SimJobOptions job;
  job.task = std::make_shared<ProblemTask>(Problem{});
  job.make_strategy = Registry::builtin().configure("osp", {"lgp=momentum"}).make;
  job.optimizer = {.kind = "adamw"};
  EXPECT_THROW(run_sim_job(job), ConfigError);
}

}  // namespace
}  // namespace slipstream::oracle
