// SPDX-License-Identifier: Apache-2.0
//
// gs-SGD: the large entries of the sum of all workers' gradients, found through one global Count-Sketch. See
// cards/gs.md.
//
// Replicas stay bit-identical: what is applied follows from sums alone, which are the same bits everywhere.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <optional>
#include <string>
#include <vector>

#include "strategy/sketch_memory.h"
#include "topology/tree.h"

namespace slipstream {

struct GsSgdOptions : SketchOptions {
  std::string topology = "tree";  // changes the result, by rounding

  void describe(OptionSet& o);
};

class GsSgd final : public Strategy {
 public:
  using Options = GsSgdOptions;
  explicit GsSgd(const Options& options) : options_(options) { options_.check_shape(); }

  static double bytes_sent(const Options& options, const TrafficQuery& q);

  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override { memory_->visit(v); }

 private:
  void sum(Step& s, std::span<float> values);

  Options options_;
  std::optional<SketchMemory> memory_;
  TreeSum tree_;
  std::vector<float> exact_;  // scratch: x
};

}  // namespace slipstream
