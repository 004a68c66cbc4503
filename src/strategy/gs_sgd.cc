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

}  // namespace slipstream
