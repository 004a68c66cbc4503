// SPDX-License-Identifier: Apache-2.0
#include "engine/regroup.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "kit/sim.h"
#include "sim/sim_world.h"

namespace slipstream {
namespace {

using test::Variant;

// What everybody of a group finds out when they meet.
std::vector<Meeting> meetings(const std::vector<Holdings>& brought) {
  std::vector<Meeting> all(brought.size());
  SimWorld world({.ranks = static_cast<int>(brought.size())});
  const auto outcomes = world.run([&](SimPort& port) {
    const auto r = static_cast<std::size_t>(port.rank());
    all[r] = meet(port, brought[r]);
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.finished()) << outcome.error;
  return all;
}

Holdings holding(std::int64_t steps, int rank, int workers, std::vector<double> norms = {}, std::int64_t group = 3) {
  return {.steps = steps, .rank = rank, .workers = workers, .group = group, .norms = std::move(norms)};
}

TEST(Regroup, NobodyHasTrainedInTheFirstGroup) {
  for (const Meeting& meeting : meetings({{}, {}, {}})) {
    EXPECT_TRUE(meeting.first);
    EXPECT_EQ(meeting.steps, 0);
    EXPECT_EQ(meeting.source, 0);
  }
}

TEST(Regroup, TheSourceHasTrainedFurthestAndTheLostAreCounted) {
  // Of four workers rank 1 was lost; rank 3 had finished a step more than the others; one is new.
  const std::vector<double> norms = {1, 3, 0.5, 2};
  for (const Meeting& meeting :
       meetings({holding(7, 0, 4, norms), {}, holding(7, 2, 4, norms), holding(8, 3, 4, norms)})) {
    EXPECT_FALSE(meeting.first);
    EXPECT_EQ(meeting.source, 3);
    EXPECT_EQ(meeting.steps, 8);
    EXPECT_EQ(meeting.lost, 1);
    EXPECT_EQ(meeting.joined, 1);
    EXPECT_DOUBLE_EQ(meeting.written_off, 3);
    EXPECT_EQ(meeting.group, 4);
  }
}

TEST(Regroup, AWorkerThatWasLeftOutOfAGroupCountsAsNew) {
  for (const Meeting& meeting : meetings({holding(20, 0, 2), holding(20, 1, 2), holding(5, 1, 3, {}, 2)})) {
    EXPECT_EQ(meeting.lost, 0);
    EXPECT_EQ(meeting.joined, 1);
  }
}

// A job of several layers and buckets, run for some steps and left in mid-training, as a failure leaves it.
struct Left {
  std::vector<Holdings> holdings;
  double mean_owed(std::size_t i, const std::vector<int>& of) const {
    double sum = 0;
    for (const int r : of) sum += holdings[static_cast<std::size_t>(r)].owed[i];
    return sum / static_cast<double>(holdings.size());
  }
};

Left leave_after(const SimJobOptions& job, int crashed, std::int64_t steps) {
  SimJobOptions breaks = job;
  breaks.world.faults = {Fault::crash(crashed, FaultPoint::at_step(steps))};
  breaks.steps = steps + 5;
  const SimJobResult result = run_sim_job(breaks);
  Left left;
  for (const SimRankResult& rank : result.ranks) left.holdings.push_back(rank.left.value_or(Holdings{}));
  return left;
}

// Looks at every engine of the group that these workers form.
void in_next_group(const SimJobOptions& job, const std::vector<Holdings>& bring,
                   const std::function<void(std::size_t rank, Engine& engine)>& look) {
  SimWorld world({.ranks = static_cast<int>(bring.size())});
  const auto outcomes = world.run([&](SimPort& port) {
    const auto r = static_cast<std::size_t>(port.rank());
    FlatModel model(job.task->parameters());
    const Meeting meeting = meet(port, bring[r]);
    Engine engine(port, model, job.make_strategy(),
                  {.optimizer = job.optimizer, .brings = &bring[r], .meeting = meeting});
    look(r, engine);
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.finished()) << outcome.error;
}

class OwedAcrossGroups : public testing::TestWithParam<const char*> {};

TEST_P(OwedAcrossGroups, TheMeanOfWhatSurvivorsOweStaysWhatItWas) {
  SimJobOptions job = test::sim_job(Variant{GetParam(), {}}, 4);
  job.task = std::make_shared<MlpTask>();  // powersgd owes of matrices only
  job.world.timeout_s = 5;
  const Left left = leave_after(job, 1, 8);
  ASSERT_FALSE(left.holdings[0].owed.empty());
  // Two survivors, then five workers: the third survivor and two new ones join.
  for (const std::vector<int>& who : {std::vector<int>{0, 3}, std::vector<int>{0, 2, 3, -1, -1}}) {
    std::vector<Holdings> bring;
    for (const int r : who) bring.push_back(r < 0 ? Holdings{} : left.holdings[static_cast<std::size_t>(r)]);
    std::vector<std::vector<float>> owed(who.size());
    in_next_group(job, bring, [&](std::size_t r, Engine& engine) {
      EXPECT_EQ(engine.t(), left.holdings[0].steps);
      const auto mine = engine.strategy().owed();
      owed[r].assign(mine.begin(), mine.end());
    });
    std::vector<int> survivors;
    for (const int r : who) {
      if (r >= 0) survivors.push_back(r);
    }
    double largest = 0;
    for (std::size_t i = 0; i < owed[0].size(); ++i) {
      double mean = 0;
      for (const auto& mine : owed) mean += mine[i];
      mean /= static_cast<double>(owed.size());
      const double before = left.mean_owed(i, survivors);
      largest = std::max(largest, std::abs(before));
      ASSERT_NEAR(mean, before, 1e-6 * std::max(1.0, std::abs(before))) << "entry " << i;
    }
    EXPECT_GT(largest, 0) << "nothing was owed: nothing was tested";
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, OwedAcrossGroups,
                         testing::Values("topk", "gtopk", "lags", "gs", "sketched", "powersgd"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Regroup, TheOptimizersStateOfTheSourceIsEverybodys) {
  SimJobOptions job = test::sim_job(Variant{"ssgd", {}}, 3);
  job.world.timeout_s = 5;
  const Left left = leave_after(job, 2, 6);
  std::vector<Holdings> bring = {left.holdings[0], Holdings{}, left.holdings[1]};
  std::vector<StateArchive> states(3);
  in_next_group(job, bring, [&](std::size_t r, Engine& engine) {
    states[r].save("optim/", [&](StateVisitor& v) { engine.optimizer().visit(v); });
  });
  StateArchive before = left.holdings[0].state;
  const auto velocity = std::get<std::vector<float>>(before.entries().at("optim/velocity"));
  EXPECT_GT(std::abs(velocity[0]), 0);
  for (const StateArchive& state : states) {
    EXPECT_EQ(std::get<std::vector<float>>(state.entries().at("optim/velocity")), velocity);
  }
}

}  // namespace
}  // namespace slipstream
