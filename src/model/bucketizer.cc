// SPDX-License-Identifier: Apache-2.0
#include "model/bucketizer.h"

#include <slipstream/base/error.h>

#include <algorithm>

namespace slipstream {

Bucketizer::Bucketizer(const FlatModel& model, std::vector<Bucket> plan, OnReady on_ready)
    : model_(model),
      plan_(std::move(plan)),
      on_ready_(std::move(on_ready)),
      bucket_of_slot_(model.slots().size()),
      seen_(model.slots().size()),
      missing_(plan_.size()) {
  for (const Bucket& bucket : plan_) {
    for (std::size_t slot = bucket.first_slot; slot < bucket.end_slot; ++slot) {
      bucket_of_slot_[slot] = static_cast<std::size_t>(bucket.index);
    }
  }
  begin_step();
}

void Bucketizer::begin_step() {
  std::fill(seen_.begin(), seen_.end(), false);
  for (const Bucket& bucket : plan_)
    missing_[static_cast<std::size_t>(bucket.index)] = bucket.end_slot - bucket.first_slot;
  released_ = 0;
}

void Bucketizer::slot_ready(std::size_t slot) {
  check(slot < seen_.size(), "slot {} of {} reported ready", slot, seen_.size());
  if (seen_[slot]) {
    fail<ConfigError>(
        "parameter '{}' got a second gradient in one step; for several backward passes per step keep "
        "Session::hold() alive during all but the last, in Python `with opt.no_sync():`",
        model_.slots()[slot].name);
  }
  seen_[slot] = true;
  --missing_[bucket_of_slot_[slot]];
  release();
}

void Bucketizer::finish_backward() {
  std::fill(missing_.begin(), missing_.end(), 0);
  release();
}

void Bucketizer::release() {
  while (released_ < plan_.size() && missing_[released_] == 0) on_ready_(plan_[released_++]);
}

}  // namespace slipstream
