// SPDX-License-Identifier: Apache-2.0
#include "strategy/topk_sgd.h"

namespace slipstream {

void TopkSgd::on_step(Step& s) {
  const Bucket whole{.count = s.model.count(), .end_slot = s.model.slots().size()};
  exchange_->start(s, whole, options_.entries(whole.count, s.t));  // (1) (2)
  exchange_->finish(s);                                            // (3) (4)
}

double TopkSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  return options.bytes_sent(q.model.count(), q);
}

StrategyInfo TopkSgd::info() {
  return {
      .name = "topk",
      .title = "top-k SGD: send the largest entries of what is owed, keep the rest for later (error feedback)",
      .paper =
          "A. F. Aji, K. Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017 "
          "(arXiv 1704.05021); Y. Lin et al., Deep Gradient Compression, ICLR 2018 (arXiv 1712.01887)",
      .pseudo_code = {"after backward:",
                      "  (1) e <- e + g                                  or, corrected: u <- m u + g, e <- e + u",
                      "  (2) s <- the k largest entries of e, moved out of e",
                      "  (3) G <- sum over workers of s                  all-gather of indices and values, blocking",
                      "  (4) w <- w - step(G / P)"},
      .bytes_per_step =
          "(P-1) × about (32 + k × 5.6) bytes at density 0.01, k × 6.3 at 0.001; k = density × parameters",
      .waits_for = "every worker's selection, in every step, after backward",
      .notes = {"One selection over the whole model: nothing overlaps backward.",
                "Nothing is lost: what is not sent, and what rounding takes away, is added to the next gradient.",
                "All workers receive P-1 records, so with many workers a sum of everything may be cheaper.",
                "momentum=corrected needs optimizer=sgd without Nesterov and without clip_norm."},
      .configure = [] { return configure_strategy<TopkSgd>("topk"); },
  };
}

}  // namespace slipstream
