// SPDX-License-Identifier: Apache-2.0
#include "strategy/gs_sgd.h"

#include <slipstream/base/error.h>

#include "fabric/metered_fabric.h"
#include "topology/link_probe.h"

namespace slipstream {

void GsSgd::on_start(Step& s) {
  memory_.emplace(options_, s.model, s.opt.memory(), options_.format(s.net.size()));
  sent_.resize(memory_->plan().chosen);
  topology_ = options_.topology == "auto"        ? fastest(s.net)
              : options_.topology == "everybody" ? Topology::kEverybody
              : options_.topology == "tree"      ? Topology::kTree
                                                 : Topology::kDirect;
}

std::size_t GsSgd::most_columns(int workers) const {
  const SketchPlan& plan = memory_->plan();
  return topology_ == Topology::kEverybody ? plan.most_columns_to_everybody(workers) : plan.most_columns;
}

// By what a gather takes here: its latency is one delay, and its seconds per byte are those of a byte to everybody. With
// more than two workers that carries more bytes than sums by owners, which others on the wire feel: it must save a time
// that can be noticed, and stay within the bytes of every step. The tree carries several times the bytes, in fp32.
GsSgd::Topology GsSgd::fastest(Fabric& net) const {
  constexpr double kNoticeable = 1e-3;  // seconds
  const SketchPlan& plan = memory_->plan();
  if (net.size() == 1 || plan.coordinates == 0) return Topology::kDirect;
  if (net.size() == 2) return Topology::kEverybody;  // half of the delays for the same bytes
  if (plan.most_columns_to_everybody(net.size()) < plan.least_columns) return Topology::kDirect;
  const auto bytes = [format = options_.format(net.size())](std::size_t count) {
    return static_cast<double>(values_bytes(count, format));
  };
  const double table = (options_.narrow_table() ? 1 : bytes(1)) * static_cast<double>(SketchPlan::cells(plan.shape)) +
                       sizeof(float) * static_cast<double>(plan.small_count);
  const double picked = bytes(plan.k) + static_cast<double>(plan.chosen) / 8;
  const auto ranks = static_cast<double>(net.size());
  const LinkCost link = probe_link(net).gather;
  const double everybody_s = link.seconds(table) + link.seconds(bytes(plan.chosen));
  const double owners_s =
      2 * link.seconds(table / ranks) + link.seconds(bytes(plan.chosen) / ranks) + link.seconds(picked / ranks);
  return everybody_s + kNoticeable < owners_s ? Topology::kEverybody : Topology::kDirect;
}

void GsSgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  memory_->add(s, bucket);  // (1)
}

void GsSgd::on_step(Step& s) {
  const auto table = memory_->table();        // (2)
  sum(s, table);                              // (3)
  const auto& chosen = memory_->choose(s.t);  // (4)
  memory_->leaving(s, chosen, sent_);         // (5)
  Sparse lost;
  const Sparse picked = pick(s, sent_, lost);  // (5) (6)
  memory_->follow_recall(s, picked, most_columns(s.net.size()));
  memory_->apply(s, picked, sent_, lost);  // (7) (8)
}

void GsSgd::sum(Step& s, std::span<float> table) {
  const bool along_tree = topology_ == Topology::kTree;
  if (!along_tree && options_.narrow_table()) return narrow_.sum(s.net, table, memory_->small(), way());
  InFlight small = s.net.sum(memory_->small());
  if (along_tree) {
    tree_.sum(s.net, table);
  } else {
    s.net.sum(table, options_.table_format(s.net.size())).wait();
  }
  small.wait();
}

Sparse GsSgd::pick(Step& s, std::span<float> values, Sparse& lost) {
  const std::size_t k = memory_->plan().k;
  if (topology_ == Topology::kTree) {
    std::vector<float> sums(values.begin(), values.end());
    tree_.sum(s.net, sums);
    return pick_by_shares(sums, k, s.net.size(), select_);
  }
  return picks_.pick(s.net, values, k, options_.format(s.net.size()), way(), lost);  // what rounding takes stays owed
}

double GsSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const ValueFormat format = options.format(q.workers);
  const SketchPlan plan(options, q.model, format);
  const std::size_t cells = plan.coordinates == 0 ? 0 : SketchPlan::cells(plan.shape);
  double bytes = 0;
  if (!options.columns && !plan.shape.identity && plan.coordinates > 0 && SketchPlan::looks_at_recall(q.t)) {
    bytes += SketchMemory::recall_bytes(plan, q.workers);
  }
  const double small = MeteredFabric::sum_bytes(plan.small_count, q.workers);
  if (options.topology == "tree") {
    return bytes + small + TreeSum::bytes_sent(cells, q.rank, q.workers) +
           TreeSum::bytes_sent(plan.chosen, q.rank, q.workers);
  }
  const Way way = options.topology == "everybody" ? Way::kEverybody : Way::kOwners;
  bytes += options.narrow_table() ? TableSum::bytes_sent(cells, plan.small_count, q.workers, way)
                                  : small + MeteredFabric::sum_bytes(cells, q.workers, options.table_format(q.workers));
  return bytes + PickExchange::bytes_sent(plan.chosen, plan.k, q.workers, format, way);
}

void GsSgd::visit(StateVisitor& v) {
  memory_->visit(v);
  auto topology = static_cast<std::int64_t>(topology_);
  v.integer("topology", topology);
  topology_ = static_cast<Topology>(topology);
}

std::string GsSgd::news() {
  if (!memory_ || memory_->plan().coordinates == 0 || memory_->columns() == told_columns_) return {};
  told_columns_ = memory_->columns();
  const SketchPlan& plan = memory_->plan();
  return fmt::format("gs: {} of {} entries a step, a table of {} x {} ({:.1f} k), summed {}{}", plan.k,
                     plan.coordinates, plan.shape.rows, told_columns_,
                     static_cast<double>(told_columns_) / static_cast<double>(plan.k),
                     topology_ == Topology::kTree        ? "along the tree"
                     : topology_ == Topology::kEverybody ? "by everybody"
                                                         : "by owners",
                     memory_->recall() > 0 ? fmt::format(", recall {:.2f}", memory_->recall()) : "");
}

void GsSgdOptions::describe(OptionSet& o) {
  SketchOptions::describe(o);
  o.choice(
      "topology", topology, {"auto", "direct", "everybody", "tree"}, kChangesResult,
      "how sums travel: directly to the ranks that add them (two delays, bytes that do not grow with P), to "
      "everybody (one delay, P/2 times the bytes; the table where it has 8 bits, and the values), along a binomial "
      "tree as "
      "published (in fp32); auto: to everybody between two workers, or where that saves a millisecond, as measured at "
      "the start; else directly");
  o.choice("wire", wire, {"fp32", "bf16", "fp8", "int8"}, kChangesResult,
           "number format of table and values when they travel directly; what rounding takes away is owed. fp8: the "
           "table, which only points out where to look, with 8 bits, values as with bf16; int8: values with 8 bits, "
           "too, and a scale for 256 of them");
}

}  // namespace slipstream
