// SPDX-License-Identifier: Apache-2.0
//
// Sampler: which samples a worker takes at which step. Every epoch has one global order, a shuffle that depends on the
// seed and the epoch alone. A step takes its next batch * workers samples, rank r the r-th slice of `batch` among them.
// So P workers with batch B and one worker with batch P * B see the same global batches, and any position can be asked
// for at any time. When the number of workers changes, the workers continue from the same position: no sample of the
// epoch comes twice, none is skipped. Samples that do not fill a global batch are left out of that epoch. The order is
// the same on every platform. It does not touch the data.
#pragma once

#include <slipstream/base/state.h>

#include <cstdint>
#include <span>
#include <vector>

namespace slipstream {

// Where a training stands in its data: all workers together have taken `taken` samples of this epoch.
struct Position {
  std::int64_t epoch = 0, taken = 0;
  bool operator==(const Position&) const = default;
  void visit(StateVisitor& v) {
    v.integer("epoch", epoch);
    v.integer("taken", taken);
  }
};

class Sampler {
 public:
  // ConfigError, with the largest batch that fits, where not even one global batch does.
  Sampler(std::int64_t count, std::int64_t batch_per_worker, int rank, int workers, std::uint64_t seed);

  void place(int rank, int workers);  // this worker's place from now on; throws like the constructor

  std::int64_t steps_per_epoch() const { return count_ / global(); }
  // `at`, or the beginning of the next epoch where no global batch is left in this one.
  Position first_from(const Position& at) const;
  Position after(const Position& at) const { return first_from({at.epoch, at.taken + global()}); }
  std::int64_t steps_until(const Position& at, std::int64_t epochs) const;  // until this many epochs are done

  // This worker's samples at a position that has a global batch left. Valid until another epoch is asked for.
  std::span<const std::int64_t> batch(const Position& at);

 private:
  std::int64_t global() const { return batch_ * workers_; }

  std::int64_t count_;
  std::int64_t batch_;
  int rank_ = 0;
  int workers_ = 1;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;          // the epoch that order_ belongs to
  std::vector<std::int64_t> order_;  // a permutation of 0 … count-1
};

// A uniform random number in [0, range) for an epoch, independent of the epoch's order; the same on every rank.
std::int64_t epoch_offset(std::uint64_t seed, std::int64_t epoch, std::int64_t range);

// A rank's part of `count` things: contiguous, in rank order, sizes differ by one at most.
struct Shard {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
Shard balanced_shard(std::int64_t count, int rank, int workers);

}  // namespace slipstream
