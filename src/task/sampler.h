// SPDX-License-Identifier: Apache-2.0
//
// Sampler: which samples a worker takes at which step. Every epoch has one global order, a shuffle that depends on the
// seed and the epoch alone. Step i takes the next batch * workers samples of it, rank r the r-th slice of `batch`
// among them. So P workers with batch B and one worker with batch P * B see the same global batches, and any step can
// be asked for at any time (resuming needs no state). What does not fill a global batch is left out of that epoch.
// The order is the same on every platform. It does not touch the data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace slipstream {

class Sampler {
 public:
  // ConfigError where not even one global batch fits, with the largest batch that does.
  Sampler(std::int64_t count, std::int64_t batch_per_worker, int rank, int workers, std::uint64_t seed);

  std::int64_t steps_per_epoch() const { return count_ / (batch_ * workers_); }

  // This worker's samples at a step of an epoch, from 0 on. Valid until another epoch is asked for.
  std::span<const std::int64_t> batch(std::int64_t epoch, std::int64_t step_in_epoch);

 private:
  std::int64_t count_;
  std::int64_t batch_;
  int rank_;
  int workers_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;          // whose order this is:
  std::vector<std::int64_t> order_;  // a permutation of 0 … count-1
};

// An even random number in [0, range) of an epoch, independent of its order: the same on every rank.
std::int64_t epoch_offset(std::uint64_t seed, std::int64_t epoch, std::int64_t range);

// The part of `count` things that falls to a rank: contiguous, in rank order, sizes differ by one at most.
struct Shard {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
Shard balanced_shard(std::int64_t count, int rank, int workers);

}  // namespace slipstream
