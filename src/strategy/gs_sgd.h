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
#include "topology/pick_exchange.h"
#include "topology/table_sum.h"
#include "topology/tree.h"

namespace slipstream {

struct GsSgdOptions : SketchOptions {
  std::string topology = "auto";  // both change the result, by rounding
  std::string wire = "int8";

  void describe(OptionSet& o);
  bool narrow_table() const { return wire == "fp8" || wire == "int8"; }
  // Of a table that is not narrow, and of values.
  Wire table_format(int workers) const { return workers == 1 ? Wire::kFp32 : parse_wire(wire); }
  ValueFormat format(int workers) const {
    if (workers == 1 || topology == "tree") return ValueFormat::kFp32;
    return wire == "fp8" ? ValueFormat::kBf16 : parse_value_format(wire);
  }
};

class GsSgd final : public Strategy {
 public:
  using Options = GsSgdOptions;
  explicit GsSgd(const Options& options) : options_(options) { options_.check_shape(); }

  static double bytes_sent(const Options& options, const TrafficQuery& q);
  static bool follows_clock(const Options& options) { return options.topology == "auto"; }

  OptimizerUse optimizer_use() const override { return OptimizerUse::kDirections; }
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override;
  std::span<float> owed() override { return memory_->owed(); }
  std::string news() override;

 private:
  enum class Topology { kDirect, kEverybody, kTree };
  Topology fastest(Fabric& net) const;
  std::size_t most_columns(int workers) const;
  Way way() const { return topology_ == Topology::kEverybody ? Way::kEverybody : Way::kOwners; }
  void sum(Step& s, std::span<float> table);  // and of the small tensors
  Sparse pick(Step& s, std::span<float> values, Sparse& lost);

  Options options_;
  Topology topology_ = Topology::kDirect;
  std::optional<SketchMemory> memory_;
  TreeSum tree_;
  TableSum narrow_;
  PickExchange picks_;
  TopK select_;
  std::vector<float> sent_;  // scratch: this worker's part of x
  std::size_t told_columns_ = 0;
};

}  // namespace slipstream
