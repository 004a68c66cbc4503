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
  along_tree_ = options_.topology == "tree" || (options_.topology == "auto" && tree_is_faster(s.net));
}

// Of two workers each is the other's tree.
bool GsSgd::tree_is_faster(Fabric& net) {
  const SketchPlan& plan = memory_->plan();
  if (net.size() <= 2 || plan.coordinates == 0) return false;
  std::vector<float> values;
  const LinkCost direct = probe_cost(net, [&](std::size_t bytes) {
    values.resize(bytes / sizeof(float));
    net.sum(values).wait();
  });
  const LinkCost tree = probe_cost(net, [&](std::size_t bytes) {
    values.resize(bytes / sizeof(float));
    tree_.sum(net, values);
  });
  const double width = static_cast<double>(wire_width(options_.format(net.size())));
  const auto cells = static_cast<double>(SketchPlan::cells(plan.shape)), chosen = static_cast<double>(plan.chosen);
  // The second round's way back carries little: half of a sum.
  const double direct_s = direct.seconds(width * cells) + direct.seconds(width * chosen / 2);
  return tree.seconds(sizeof(float) * cells) + tree.seconds(sizeof(float) * chosen) < direct_s;
}

void GsSgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  memory_->add(s, bucket);  // (1)
}

void GsSgd::on_step(Step& s) {
  InFlight small = s.net.sum(memory_->small());
  const auto table = memory_->table();        // (2)
  sum(s, table);                              // (3)
  const auto& chosen = memory_->choose(s.t);  // (4)
  memory_->leaving(s, chosen, sent_);         // (5)
  Sparse lost;
  const Sparse picked = pick(s, sent_, lost);  // (5) (6)
  memory_->follow_recall(s, picked);
  small.wait();
  memory_->apply(s, picked, sent_, lost);  // (7) (8)
}

void GsSgd::sum(Step& s, std::span<float> values) {
  if (along_tree_) {
    tree_.sum(s.net, values);
  } else {
    s.net.sum(values, options_.format(s.net.size())).wait();
  }
}

Sparse GsSgd::pick(Step& s, std::span<float> values, Sparse& lost) {
  const std::size_t k = memory_->plan().k;
  if (along_tree_) {
    std::vector<float> sums(values.begin(), values.end());
    tree_.sum(s.net, sums);
    return pick_by_shares(sums, k, s.net.size(), select_);
  }
  const Wire wire = options_.format(s.net.size());
  wire_round(wire, values);  // what that takes away was not sent, and stays owed
  return direct_.pick(s.net, values, k, wire, lost);
}

double GsSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const Wire wire = options.format(q.workers);
  const SketchPlan plan(options, q.model, wire);
  const std::size_t cells = plan.coordinates == 0 ? 0 : SketchPlan::cells(plan.shape);
  double bytes = MeteredFabric::sum_bytes(plan.small_count, q.workers);
  if (!options.columns && !plan.shape.identity && plan.coordinates > 0 && SketchPlan::looks_at_recall(q.t)) {
    bytes += SketchMemory::recall_bytes(plan, q.workers);
  }
  if (options.topology == "tree") {
    return bytes + TreeSum::bytes_sent(cells, q.rank, q.workers) + TreeSum::bytes_sent(plan.chosen, q.rank, q.workers);
  }
  return bytes + MeteredFabric::sum_bytes(cells, q.workers, wire) +
         PickExchange::bytes_sent(plan.chosen, plan.k, q.workers, wire);
}

void GsSgd::visit(StateVisitor& v) {
  memory_->visit(v);
  std::int64_t tree = along_tree_ ? 1 : 0;
  v.integer("along tree", tree);
  along_tree_ = tree != 0;
}

std::string GsSgd::news() {
  if (!memory_ || memory_->plan().coordinates == 0 || memory_->columns() == told_columns_) return {};
  told_columns_ = memory_->columns();
  const SketchPlan& plan = memory_->plan();
  return fmt::format("gs: {} of {} entries a step, a table of {} x {} ({:.1f} k), summed {}{}", plan.k,
                     plan.coordinates, plan.shape.rows, told_columns_,
                     static_cast<double>(told_columns_) / static_cast<double>(plan.k),
                     along_tree_ ? "along the tree" : "directly",
                     memory_->recall() > 0 ? fmt::format(", recall {:.2f}", memory_->recall()) : "");
}

void GsSgdOptions::describe(OptionSet& o) {
  SketchOptions::describe(o);
  o.choice("topology", topology, {"auto", "direct", "tree"}, kChangesResult,
           "how sums travel: directly to the ranks that add them (two delays, bytes that do not grow with P), along a "
           "binomial tree as published, or the faster of the two by a measurement at the start");
  o.choice("wire", wire, {"fp32", "bf16"}, kChangesResult,
           "number format of table and values when they travel directly; what rounding takes away is owed");
}

StrategyInfo GsSgd::info() {
  return {
      .name = "gs",
      .title = "gs-SGD: find the largest entries of the summed gradient through one small table that workers can add",
      .paper =
          "Dai, Diao, Li, Xu, Efficient Global Sketching for Distributed SGD (gs-SGD), arXiv 2108.06004; recovery: N. "
          "Ivkin et al., Communication-Efficient Distributed SGD with Sketching, NeurIPS 2019 (arXiv 1903.04488)",
      .pseudo_code = {"during backward, layer by layer:",
                      "  (1) v <- v + g                                      or, corrected: u <- m u + g, v <- v + u",
                      "after backward:",
                      "  (2) T <- sketch(the p1 k largest entries of v)      one table for the whole model",
                      "  (3) T <- sum over workers of T                      up a binomial tree and down again",
                      "  (4) C <- the p2 k coordinates of largest estimates  the same on all workers",
                      "  (5) x <- sum over workers of v[C] / P               exact values, the same tree",
                      "  (6) K <- the k largest of x",
                      "  (7) w[K] <- w[K] - lr / (1 - m) x[K]                or, corrected: lr x[K]",
                      "  (8) v[K] <- 0                                       or, corrected: u[K] <- 0, too"},
      .bytes_per_step =
          "tree: at most ceil(log2 P) × B each way (rank 0; others less), ring: 2 (P-1)/P × B; B = 4 bytes × (rows × "
          "columns + small tensors + candidates × k)",
      .waits_for = "two sums over all workers, in every step, after backward",
      .notes = {"A table's size depends on neither P nor how much the workers' entries overlap: made for many workers. "
                "At P = 2 topk and lags say the same in fewer bytes.",
                "Nothing is lost: what is not applied stays owed.",
                "Momentum is folded into the step by default (a deviation): with small tables entries wait long, and "
                "velocities summed meanwhile diverge. momentum=corrected is the published form; give it columns and "
                "density, or a smaller lr.",
                "Needs optimizer=sgd without Nesterov and without clip_norm. Weight decay acts on all weights in every "
                "step, not through the memory.",
                "Biases and other small tensors (dense_below) are summed whole and have plain momentum.",
                "exact=false applies estimates: give it columns of some k, or its errors feed on themselves.",
                "A table that would be no smaller than the model becomes one with a cell for every entry, and exact.",
                "Over wires with long delays use topology=tree; with many workers on a short, thin one, ring."},
      .configure = [] { return configure_strategy<GsSgd>("gs"); },
  };
}

}  // namespace slipstream
