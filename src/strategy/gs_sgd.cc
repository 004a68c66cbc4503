// SPDX-License-Identifier: Apache-2.0
#include "strategy/gs_sgd.h"

#include <slipstream/base/error.h>

#include "fabric/metered_fabric.h"
#include "fabric/wire.h"
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

// By what a gather takes here: its latency is one delay, and its seconds per byte are those of a byte to everybody. The
// tree carries several times the bytes, in fp32, which others on the wire feel: it must be twice as fast as the better of
// the two, and not by the chance of one measurement.
GsSgd::Topology GsSgd::fastest(Fabric& net) {
  const SketchPlan& plan = memory_->plan();
  if (net.size() == 1 || plan.coordinates == 0) return Topology::kDirect;
  const double width = static_cast<double>(wire_width(options_.format(net.size())));
  const double cell_width = options_.narrow_table() ? 1 : width;
  const auto cells = static_cast<double>(SketchPlan::cells(plan.shape)), chosen = static_cast<double>(plan.chosen);
  const double table = cell_width * cells + sizeof(float) * static_cast<double>(plan.small_count);
  const auto k = static_cast<double>(plan.k), ranks = static_cast<double>(net.size());
  const LinkCost link = probe_link(net).gather;
  const double everybody_s = link.seconds(table) + link.seconds(width * chosen);
  const double owners_s = 2 * link.seconds(table / ranks) + link.seconds(width * chosen / ranks) +
                          link.seconds((width * k + chosen / 8) / ranks);
  const Topology better = everybody_s < owners_s ? Topology::kEverybody : Topology::kDirect;
  if (net.size() == 2) return better;  // each is the other's tree
  std::vector<float> values;
  const LinkCost tree = probe_cost(net, [&](std::size_t bytes) {
    values.resize(bytes / sizeof(float));
    tree_.sum(net, values);
  });
  const double tree_s = tree.seconds(sizeof(float) * cells) + tree.seconds(sizeof(float) * chosen);
  return tree_s < 0.5 * std::min(everybody_s, owners_s) ? Topology::kTree : better;
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
  memory_->follow_recall(s, picked);
  memory_->apply(s, picked, sent_, lost);  // (7) (8)
}

void GsSgd::sum(Step& s, std::span<float> table) {
  const bool along_tree = topology_ == Topology::kTree;
  if (!along_tree && options_.narrow_table()) return narrow_.sum(s.net, table, memory_->small(), way());
  InFlight small = s.net.sum(memory_->small());
  if (along_tree) {
    tree_.sum(s.net, table);
  } else {
    s.net.sum(table, options_.format(s.net.size())).wait();
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
  const Wire wire = options_.format(s.net.size());
  wire_round(wire, values);  // what that takes away was not sent, and stays owed
  return picks_.pick(s.net, values, k, wire, way(), lost);
}

double GsSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const Wire wire = options.format(q.workers);
  const SketchPlan plan(options, q.model, wire);
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
                                  : small + MeteredFabric::sum_bytes(cells, q.workers, wire);
  return bytes + PickExchange::bytes_sent(plan.chosen, plan.k, q.workers, wire, way);
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
      "everybody (one delay, P/2 times the bytes; the table with wire=fp8 and the values), along a binomial tree as "
      "published; or the faster of the first two, and the tree where that is twice as fast, measured at the start");
  o.choice("wire", wire, {"fp32", "bf16", "fp8"}, kChangesResult,
           "number format of table and values when they travel directly; what rounding takes away is owed. fp8: the "
           "table, which only points out where to look, with 8 bits, values as with bf16");
}

}  // namespace slipstream
