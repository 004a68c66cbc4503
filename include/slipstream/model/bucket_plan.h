// SPDX-License-Identifier: Apache-2.0
//
// How a flat model is cut into buckets. Backward produces gradients roughly from the last slot to the first, so the
// plan walks the slots in reverse; every rank derives the same plan from the same model and rule.
#pragma once

#include <slipstream/model/flat_model.h>

#include <cstddef>
#include <vector>

namespace slipstream {

// A bucket is closed as soon as it holds at least this many bytes; 0 gives every slot a bucket of its own.
struct BucketRule {
  std::size_t first_bytes = 0;  // the first bucket may be smaller, so that the wire starts early
  std::size_t bytes = 0;

  static BucketRule per_slot() { return {0, 0}; }
  static BucketRule by_bytes(std::size_t first, std::size_t others) { return {first, others}; }
};

std::vector<Bucket> plan_buckets(const FlatModel& model, BucketRule rule);

}  // namespace slipstream
