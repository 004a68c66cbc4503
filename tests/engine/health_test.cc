// SPDX-License-Identifier: Apache-2.0
#include "engine/health.h"

#include <gtest/gtest.h>

#include <functional>

#include "sim/sim_world.h"

namespace slipstream {
namespace {

// What each rank learnt: the steps at which news came, and the reports it saw then.
struct Learnt {
  std::vector<std::int64_t> steps;
  std::vector<std::vector<Health::Report>> reports;
};

using Mine = std::function<Health::Report(int rank, std::int64_t t)>;

std::vector<Learnt> exchange(int ranks, std::int64_t steps, const Mine& mine, double straggler_factor = 1) {
  std::vector<Learnt> learnt(static_cast<std::size_t>(ranks));
  SimWorldOptions options;
  options.ranks = ranks;
  SimWorld world(options);
  const auto outcomes = world.run([&](SimPort& port) {
    Health health(port);
    Learnt& l = learnt[static_cast<std::size_t>(port.rank())];
    for (std::int64_t t = 0; t < steps; ++t) {
      port.compute(0.1 * (port.rank() == 0 ? straggler_factor : 1));
      if (!health.exchange(t, mine(port.rank(), t))) continue;
      l.steps.push_back(t);
      l.reports.push_back(health.reports());
    }
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.finished()) << outcome.error;
  return learnt;
}

TEST(Health, AllRanksLearnTheSameAtTheSameStep) {
  for (int ranks : {1, 2, 5}) {
    const auto learnt = exchange(ranks, 30, [](int rank, std::int64_t t) {
      return Health::Report{.step_seconds = 0.3, .bad_step = rank == 0 && t >= 4 ? 4 : -1, .wants_stop = rank};
    });
    ASSERT_FALSE(learnt[0].steps.empty());
    for (const Learnt& l : learnt) {
      EXPECT_EQ(l.steps, learnt[0].steps);
      for (std::size_t i = 0; i < l.reports.size(); ++i) {
        ASSERT_EQ(l.reports[i].size(), static_cast<std::size_t>(ranks));
        EXPECT_EQ(l.reports[i][0].bad_step, learnt[0].reports[i][0].bad_step);
        for (int r = 0; r < ranks; ++r) EXPECT_EQ(l.reports[i][static_cast<std::size_t>(r)].wants_stop, r);
      }
    }
    EXPECT_EQ(learnt.back().reports.back()[0].bad_step, 4);
  }
}

TEST(Health, ExchangesAboutOnceASecondOfTheSlowestRank) {
  const auto every = [](double step_seconds) {
    const auto learnt = exchange(3, 1000, [=](int rank, std::int64_t) {
      return Health::Report{.step_seconds = rank == 1 ? step_seconds : step_seconds / 10};
    });
    const auto& steps = learnt[2].steps;
    return steps[steps.size() - 1] - steps[steps.size() - 2];
  };
  EXPECT_EQ(every(0.125), 8);
  EXPECT_EQ(every(3.0), 1) << "at most once a step";
  EXPECT_EQ(every(0.0001), 200) << "a limit, or a stop would take too long to be noticed once steps become slow";
  EXPECT_EQ(every(0.0), 1) << "nobody knows yet how long a step takes";
}

// A report goes out at one exchange and is read at the next: nobody waits for a peer that is a few steps behind.
TEST(Health, ReadsAReportOneExchangeLater) {
  const auto learnt =
      exchange(2, 6, [](int, std::int64_t t) { return Health::Report{.step_seconds = 2, .wants_stop = t}; });
  EXPECT_EQ(learnt[0].steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(learnt[1].reports[i][0].wants_stop, static_cast<std::int64_t>(i));
}

TEST(Health, ConcludesWithTheReportsOfNowWhateverWasUnderWay) {
  for (int exchanges : {0, 1, 3}) {
    SimWorldOptions options;
    options.ranks = 3;
    SimWorld(options).run([&](SimPort& port) {
      Health health(port);
      for (int t = 0; t < exchanges; ++t) health.exchange(t, {.step_seconds = 2});
      health.conclude({.bad_step = 10 + port.rank()});
      ASSERT_EQ(health.reports().size(), 3U);
      for (int r = 0; r < 3; ++r) EXPECT_EQ(health.reports()[static_cast<std::size_t>(r)].bad_step, 10 + r);
    });
  }
}

TEST(Health, AStragglerChangesNothingButTime) {
  const Mine mine = [](int rank, std::int64_t t) { return Health::Report{.step_seconds = 0.2 + rank, .bad_step = t}; };
  const auto usual = exchange(3, 20, mine), late = exchange(3, 20, mine, 9.0);
  EXPECT_EQ(late[2].steps, usual[2].steps);
  for (std::size_t i = 0; i < usual[2].reports.size(); ++i) {
    EXPECT_EQ(late[2].reports[i][0].bad_step, usual[2].reports[i][0].bad_step);
  }
}

}  // namespace
}  // namespace slipstream
