// SPDX-License-Identifier: Apache-2.0
#include "task/sampler.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/rng.h"

namespace slipstream {
namespace {

// Separates the random streams of one (seed, epoch).
enum Purpose : std::uint64_t { kOrder = 1, kOffset = 2 };

}  // namespace

Sampler::Sampler(std::int64_t count, std::int64_t batch_per_worker, int rank, int workers, std::uint64_t seed)
    : count_(count), batch_(batch_per_worker), seed_(seed) {
  place(rank, workers);
}

void Sampler::place(int rank, int workers) {
  check(workers >= 1 && rank >= 0 && rank < workers, "rank {} of {} workers", rank, workers);
  const std::int64_t largest = count_ / workers;
  if (largest < 1) {
    fail<ConfigError>("workers = {}: there are only {} samples; use at most {} workers", workers, count_, count_);
  }
  if (batch_ < 1 || batch_ > largest) {
    fail<ConfigError>("batch = {} for each of {} workers does not fit {} samples; it goes from 1 to {}", batch_,
                      workers, count_, largest);
  }
  rank_ = rank;
  workers_ = workers;
}

Position Sampler::first_from(const Position& at) const {
  return at.taken + global() <= count_ ? at : Position{at.epoch + 1, 0};
}

std::int64_t Sampler::steps_until(const Position& at, std::int64_t epochs) const {
  if (at.epoch >= epochs) return 0;
  return (count_ - at.taken) / global() + (epochs - at.epoch - 1) * steps_per_epoch();
}

std::span<const std::int64_t> Sampler::batch(const Position& at) {
  check(at.epoch >= 0 && at.taken >= 0 && at.taken + global() <= count_,
        "a batch of {} from sample {} of epoch {}, which has {}", global(), at.taken, at.epoch, count_);
  if (at.epoch != epoch_) {
    order_.resize(static_cast<std::size_t>(count_));
    std::iota(order_.begin(), order_.end(), 0);
    Rng rng(seed_, static_cast<std::uint64_t>(at.epoch), kOrder);  // not std::shuffle: it differs between libraries
    for (std::size_t i = order_.size() - 1; i > 0; --i) std::swap(order_[i], order_[rng.below(i + 1)]);
    epoch_ = at.epoch;
  }
  const std::int64_t first = at.taken + rank_ * batch_;
  return std::span(order_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(batch_));
}

std::int64_t epoch_offset(std::uint64_t seed, std::int64_t epoch, std::int64_t range) {
  check(range >= 1, "an offset below {}", range);
  Rng rng(seed, static_cast<std::uint64_t>(epoch), kOffset);
  return static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(range)));
}

Shard balanced_shard(std::int64_t count, int rank, int workers) {
  check(count >= 0 && workers >= 1 && rank >= 0 && rank < workers, "shard {} of {} of {} things", rank, workers, count);
  const std::int64_t each = count / workers, rest = count % workers;
  const std::int64_t begin = rank * each + std::min<std::int64_t>(rank, rest);
  return {begin, begin + each + (rank < rest ? 1 : 0)};
}

}  // namespace slipstream
