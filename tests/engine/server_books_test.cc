// SPDX-License-Identifier: Apache-2.0
#include "engine/server_books.h"

#include <gtest/gtest.h>

#include "kit/sim.h"
#include "task/files.h"

namespace slipstream::test {
namespace {

// A model of 300,000 floats: several parts on every server, cut elsewhere for every number of servers.
SimJobOptions large(const std::string& strategy, int servers, const OptimizerOptions& optimizer) {
  auto job = sim_job({strategy, {}}, 2, 12);
  job.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {100'000, 1, 0, 150'003, 49'997}});
  job.world.link = {0.0005, 100e6};
  job.servers = servers;
  job.optimizer = optimizer;
  return job;
}

// bsp's workers hold nothing of their own: all that shapes the future is on the servers.
TEST(ServerBooks, ResumedWithOtherServersBspGoesOnBitForBit) {
  for (const OptimizerOptions& optimizer : {OptimizerOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01},
                                            OptimizerOptions{.kind = "adamw", .lr = 0.01, .weight_decay = 0.01}}) {
    const TempDir files;
    auto saving = large("bsp", 2, optimizer);
    saving.checkpoints = {.folder = files.path(), .every = {.steps = 7}};
    const auto uninterrupted = run_sim_job(saving);
    for (const int servers : {0, 1, 3, 5}) {
      SCOPED_TRACE(fmt::format("{}, {} servers", optimizer.kind, servers));
      auto resuming = large("bsp", servers, optimizer);
      resuming.resume_from = files.path();
      const auto resumed = run_sim_job(resuming);
      ASSERT_TRUE(resumed.all_finished()) << resumed.ranks[0].outcome.error;
      EXPECT_EQ(resumed.ranks[0].steps.front().t, 7);
      expect_same_weights(resumed, uninterrupted);
    }
  }
}

TEST(ServerBooks, AreOfUseOnlyWhereTheyAreComplete) {
  const std::vector<float> first{1, 2, 3}, second{4, 5};
  SimWorld({.ranks = 3}).run([&](SimPort& port) {
    ServerBooks books;
    if (port.rank() == 2) books.note("server@0/weights", first, 5);
    if (port.rank() == 2) books.note("server@0/velocity", first, 5);
    ServerBooks more = books;
    EXPECT_FALSE(books.share(port, {.momentum = 0.9}, 5));
    EXPECT_TRUE(books.empty());
    if (port.rank() == 1) more.note("server@3/weights", second, 5);
    if (port.rank() == 1) more.note("server@3/velocity", second, 5);
    EXPECT_TRUE(more.share(port, {.momentum = 0.9}, 5));
    EXPECT_EQ(std::vector<float>(more.weights().begin(), more.weights().end()), (std::vector<float>{1, 2, 3, 4, 5}));
  });
}

TEST(ServerBooks, IgnoreWhatIsNotServersOrDoesNotFit) {
  ServerBooks books;
  const std::vector<float> values{1, 2};
  for (const char* name :
       {"residual", "server@", "server@x/weights", "server@0", "server@4/weights", "server@0/counters"}) {
    books.note(name, values, 5);
  }
  EXPECT_TRUE(books.empty());
}

}  // namespace
}  // namespace slipstream::test
