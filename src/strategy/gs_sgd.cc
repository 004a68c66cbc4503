// SPDX-License-Identifier: Apache-2.0
#include "strategy/gs_sgd.h"

#include "fabric/metered_fabric.h"

namespace slipstream {

void GsSgd::on_start(Step& s) {
  options_.check_optimizer(s.opt.options());
  memory_.emplace(options_, s.model, static_cast<float>(s.opt.options().momentum));
  exact_.resize(memory_->plan().owed_count());
}

void GsSgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  memory_->add(s, bucket);  // (1)
}

void GsSgd::on_step(Step& s) {
  const auto message = memory_->message();   // (2)
  sum(s, message);                           // (3)
  const auto chosen = memory_->choose(s.t);  // (4)
  if (!exact_.empty()) {
    memory_->owed(chosen, exact_);
    sum(s, exact_);  // (5)
  }
  const Sparse largest = memory_->largest(chosen, exact_);  // (6)
  memory_->apply(s, largest);                               // (7) (8)
}

void GsSgd::sum(Step& s, std::span<float> values) {
  if (options_.topology == "tree") {
    tree_.sum(s.net, values);
  } else {
    s.net.sum(values).wait();
  }
}

double GsSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const SketchPlan plan(options, q.model);
  const auto bytes = [&](std::size_t count) {
    return options.topology == "tree" ? TreeSum::bytes_sent(count, q.rank, q.workers)
                                      : MeteredFabric::sum_bytes(count, q.workers);
  };
  return bytes(plan.message_count()) + bytes(plan.owed_count());
}

void GsSgdOptions::describe(OptionSet& o) {
  SketchOptions::describe(o);
  o.choice("topology", topology, {"tree", "ring"}, kChangesResult,
           "how sums travel: few messages, whose number grows with log2 P, or many small ones whose bytes do not grow");
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
