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
  memory_->add(s, bucket);  // (1) (2)
}

void GsSgd::on_step(Step& s) {
  sum(s, memory_->message());                // (3)
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
      .pseudo_code =
          {"during backward, layer by layer:",
           "  (1) u <- m u + g;  v <- v + u                       velocity, and what this worker owes",
           "  (2) T <- T + sketch(v)                              one table for the whole model", "after backward:",
           "  (3) T <- sum over workers of T                      up a binomial tree and down again, blocking",
           "  (4) C <- the p2 k coordinates of largest estimates  the same on all workers",
           "  (5) x <- sum over workers of v[C] / P               exact values, the same tree, blocking",
           "  (6) K <- the k largest of x", "  (7) w[K] <- w[K] - lr x[K]",
           "  (8) v[K] <- 0;  u[K] <- 0                           momentum factor masking"},
      .bytes_per_step =
          "tree: at most ceil(log2 P) × B each way (rank 0; others less), ring: 2 (P-1)/P × B; B = 4 bytes × (rows × "
          "columns + small tensors + candidates × k)",
      .waits_for = "two sums over all workers, in every step, after backward",
      .notes = {"x"},
      .configure = [] { return configure_strategy<GsSgd>("gs"); },
  };
}

}  // namespace slipstream
