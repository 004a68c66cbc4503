// SPDX-License-Identifier: Apache-2.0
//
// Bucketizer: turns "slot s has its gradient" into "bucket b is ready". Autograd reports slots in whatever order it
// finds; a bucket is released when all its slots are in *and* all earlier buckets of the plan are out, so every rank
// releases the same buckets in the same order. Training thread only.
#pragma once

#include <slipstream/model/bucket_plan.h>

#include <functional>
#include <vector>

namespace slipstream {

class Bucketizer {
 public:
  using OnReady = std::function<void(const Bucket&)>;

  Bucketizer(const FlatModel& model, std::vector<Bucket> plan, OnReady on_ready);

  void begin_step();  // nothing is ready
  // A second report of a slot in one step is the user's error: another backward pass would change memory that may be on
  // the wire already.
  void slot_ready(std::size_t slot);
  void finish_backward();  // unused parameters count as ready; releases all that is left

  const std::vector<Bucket>& plan() const { return plan_; }

 private:
  void release();

  const FlatModel& model_;
  std::vector<Bucket> plan_;
  OnReady on_ready_;
  std::vector<std::size_t> bucket_of_slot_;
  std::vector<bool> seen_;            // by slot
  std::vector<std::size_t> missing_;  // by bucket
  std::size_t released_ = 0;
};

}  // namespace slipstream
