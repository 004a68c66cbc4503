// SPDX-License-Identifier: Apache-2.0
#include "task/sampler.h"

#include <algorithm>
#include <set>

#include "base/rng.h"
#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;

std::vector<std::int64_t> copy(std::span<const std::int64_t> values) { return {values.begin(), values.end()}; }

TEST(Sampler, WorkersTogetherSeeTheGlobalBatchesOfOneWorker) {
  for (const int workers : {1, 2, 3, 4, 7}) {
    const std::int64_t batch = 5;
    Sampler one(1000, batch * workers, 0, 1, 42);
    for (const std::int64_t epoch : {0, 1, 9}) {
      for (std::int64_t step = 0; step < one.steps_per_epoch(); ++step) {
        std::vector<std::int64_t> together;
        for (int rank = 0; rank < workers; ++rank) {
          Sampler mine(1000, batch, rank, workers, 42);
          EXPECT_EQ(mine.steps_per_epoch(), one.steps_per_epoch());
          for (const std::int64_t sample : mine.batch({epoch, step * batch * workers})) together.push_back(sample);
        }
        ASSERT_EQ(together, copy(one.batch({epoch, step * batch * workers})));
      }
    }
  }
}

TEST(Sampler, AnEpochTakesEverySampleOnceButTheRemainder) {
  Sampler sampler(103, 10, 0, 1, 7);
  EXPECT_EQ(sampler.steps_per_epoch(), 10);
  std::set<std::int64_t> first, all;
  for (const std::int64_t epoch : {0, 1, 2, 3, 4}) {
    std::set<std::int64_t> seen;
    for (std::int64_t step = 0; step < 10; ++step) {
      for (const std::int64_t sample : sampler.batch({epoch, 10 * step})) {
        EXPECT_TRUE(sample >= 0 && sample < 103);
        EXPECT_TRUE(seen.insert(sample).second) << "twice: " << sample;
      }
    }
    EXPECT_EQ(seen.size(), 100u);
    all.insert(seen.begin(), seen.end());
  }
  EXPECT_EQ(all.size(), 103u);  // what one epoch leaves out, others take
}

// The number of workers changes at random steps; every epoch still takes each sample at most once, in order, and leaves
// out less than the last global batch.
TEST(Sampler, NoSampleIsSkippedOrRepeatedWhenTheNumberOfWorkersChanges) {
  Sampler alone(997, 997, 0, 1, 5);
  Rng rng(1, 2, 3);
  Position at;
  int workers = 4;
  std::vector<std::int64_t> seen;
  for (std::int64_t left = 3 * 997; at.epoch < 3; --left) {
    ASSERT_GT(left, 0);
    if (rng.below(5) == 0) {
      workers = 1 + static_cast<int>(rng.below(6));
      const Position on = Sampler(997, 7, 0, workers, 5).first_from(at);
      if (on.epoch != at.epoch) seen.clear();
      at = on;
      if (at.epoch == 3) break;
    }
    for (int rank = 0; rank < workers; ++rank) {
      Sampler mine(997, 7, rank, workers, 5);
      for (const std::int64_t sample : mine.batch(at)) seen.push_back(sample);
    }
    const auto order = alone.batch({at.epoch, 0});
    ASSERT_TRUE(std::equal(seen.begin(), seen.end(), order.begin()));
    const Sampler now(997, 7, 0, workers, 5);
    ASSERT_EQ(now.steps_until(at, 3), 1 + now.steps_until(now.after(at), 3));
    if (now.after(at).epoch != at.epoch) {
      EXPECT_GT(static_cast<std::int64_t>(seen.size()) + 7 * workers, 997);
      seen.clear();
    }
    at = now.after(at);
  }
}

TEST(Sampler, EpochsAndSeedsHaveTheirOwnOrder) {
  Sampler a(1000, 100, 0, 1, 1), b(1000, 100, 0, 1, 2);
  const auto epoch0 = copy(a.batch({0, 0}));
  EXPECT_NE(epoch0, copy(a.batch({1, 0})));
  EXPECT_NE(epoch0, copy(b.batch({0, 0})));
  EXPECT_EQ(epoch0, copy(a.batch({0, 0})));  // and going back finds the old one
}

TEST(Sampler, EveryPlaceIsEquallyLikely) {
  // 5 samples, 20000 epochs: each sample is first about 4000 times; 5 standard deviations are 283.
  Sampler sampler(5, 1, 0, 1, 3);
  std::vector<int> first(5);
  for (std::int64_t epoch = 0; epoch < 20000; ++epoch) ++first[static_cast<std::size_t>(sampler.batch({epoch, 0})[0])];
  for (const int times : first) EXPECT_NEAR(times, 4000, 283);
}

TEST(Sampler, TheOrderIsTheSameOnEveryPlatform) {
  Sampler sampler(10, 10, 0, 1, 1);
  EXPECT_EQ(copy(sampler.batch({0, 0})), (std::vector<std::int64_t>{6, 8, 3, 4, 5, 9, 0, 2, 1, 7}));
}

TEST(Sampler, ABatchThatDoesNotFitNamesTheLargest) {
  expect_error<ConfigError>([] { Sampler(100, 34, 0, 3, 1); }, {"batch = 34", "3 workers", "100 samples", "to 33"});
  expect_error<ConfigError>([] { Sampler(100, INT64_MAX, 0, 3, 1); }, {"to 33"});
  expect_error<ConfigError>([] { Sampler(100, 0, 0, 3, 1); }, {"from 1"});
  expect_error<ConfigError>([] { Sampler(2, 1, 0, 3, 1); }, {"workers = 3", "at most 2"});
  EXPECT_EQ(Sampler(100, 33, 2, 3, 1).steps_per_epoch(), 1);
}

TEST(Sampler, OffsetsFillTheirRangeAndAreTheEpochsOwn) {
  std::set<std::int64_t> seen;
  for (std::int64_t epoch = 0; epoch < 200; ++epoch) {
    const std::int64_t offset = epoch_offset(5, epoch, 8);
    EXPECT_EQ(offset, epoch_offset(5, epoch, 8));
    seen.insert(offset);
  }
  EXPECT_EQ(seen, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(BalancedShard, CoversEverythingOnceWithSizesThatDifferByOneAtMost) {
  for (const std::int64_t count : {0, 1, 6, 7, 8, 10000}) {
    for (const int workers : {1, 2, 3, 4, 7}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < workers; ++rank) {
        const Shard shard = balanced_shard(count, rank, workers);
        EXPECT_EQ(shard.begin, next);
        EXPECT_GE(shard.end - shard.begin, count / workers);
        EXPECT_LE(shard.end - shard.begin, (count + workers - 1) / workers);
        next = shard.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace slipstream
