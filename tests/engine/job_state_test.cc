// SPDX-License-Identifier: Apache-2.0
#include "engine/job_state.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kit/sim.h"
#include "task/files.h"

namespace slipstream {
namespace {

// The iterate that a job would reach if all were paid, weights less the mean of what is owed, does not depend on how many
// workers go on from a checkpoint: what they owe together, times new workers / old workers, over the new workers.
TEST(JobState, OtherNumbersOfWorkersOweTogetherWhatWasOwed) {
  const test::TempDir files;
  SimJobOptions job = test::sim_job({"topk", {"density=0.1"}}, 4);
  job.checkpoints = {.folder = files.path(), .every = {.steps = 6}, .keep = 1};
  ASSERT_TRUE(run_sim_job(job).all_finished());
  const auto checkpoint = find_checkpoint(files.path());
  const CheckpointMeta saved = CheckpointMeta::read(checkpoint);
  const FlatModel model(job.task->parameters());
  std::vector<double> owed(model.count());
  for (int rank = 0; rank < 4; ++rank) {
    const StateArchive state = read_rank(checkpoint, saved, rank);
    const auto& mine = std::get<std::vector<float>>(state.entries().at("strategy/residual"));
    for (std::size_t i = 0; i < owed.size(); ++i) owed[i] += mine[i];
  }
  double largest = 0;
  for (const double one : owed) largest = std::max(largest, std::abs(one));
  ASSERT_GT(largest, 0);
  for (const int workers : {1, 2, 3, 4, 5, 9}) {
    std::vector<double> together(owed.size());
    for (int rank = 0; rank < workers; ++rank) {
      const Holdings mine = holdings_from(checkpoint, saved, model, rank, workers);
      EXPECT_EQ(mine.steps, rank < 4 ? saved.step : -1);
      for (std::size_t i = 0; i < mine.owed.size(); ++i) together[i] += mine.owed[i];
      if (mine.steps >= 0) {
        EXPECT_EQ(mine.weights.size(), model.count());
        EXPECT_EQ(mine.state.entries().count("optim/velocity") + mine.state.entries().count("engine/first step"), 1U);
      }
    }
    for (std::size_t i = 0; i < owed.size(); ++i) ASSERT_NEAR(together[i], owed[i], 1e-6 * largest) << workers;
  }
}

}  // namespace
}  // namespace slipstream
