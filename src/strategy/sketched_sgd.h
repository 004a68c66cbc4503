// SPDX-License-Identifier: Apache-2.0
//
// Sketched-SGD: gs-SGD's ancestor, with a server (rank 0, which also works) in the middle. See cards/sketched.md.
//
// Replicas stay bit-identical: everybody applies what the server told.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <optional>
#include <vector>

#include "strategy/sketch_memory.h"
#include "topology/star.h"

namespace slipstream {

class SketchedSgd final : public Strategy {
 public:
  using Options = SketchOptions;
  explicit SketchedSgd(const Options& options) : options_(options) { options_.check_shape(); }

  static double bytes_sent(const Options& options, const TrafficQuery& q);

  OptimizerUse optimizer_use() const override { return OptimizerUse::kDirections; }
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override { memory_->visit(v); }
  std::span<float> owed() override { return memory_->owed(); }

 private:
  Options options_;
  std::optional<SketchMemory> memory_;
  Star star_;
  TopK select_;
  std::vector<std::uint32_t> chosen_;  // C
  std::vector<float> sent_;            // this worker's part of x at C
  Sparse picked_;                      // x at K
};

}  // namespace slipstream
