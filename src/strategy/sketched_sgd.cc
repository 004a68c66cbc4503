// SPDX-License-Identifier: Apache-2.0
#include "strategy/sketched_sgd.h"

namespace slipstream {

void SketchedSgd::on_start(Step& s) {
  options_.check_optimizer(s.opt.options());
  memory_.emplace(options_, s.model, static_cast<float>(s.opt.options().momentum));
  const SketchPlan& plan = memory_->plan();
  chosen_.resize(plan.chosen);
  exact_.resize(plan.owed_count());
  largest_.indices.resize(plan.k);
  largest_.values.resize(plan.k);
}

void SketchedSgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  memory_->add(s, bucket);  // (1)
}

void SketchedSgd::on_step(Step& s) {
  const bool server = s.net.rank() == 0;
  const auto tell = [&](auto& values) { Star::broadcast(s.net, std::as_writable_bytes(std::span(values))); };
  const auto message = memory_->message();     // (2)
  star_.sum_at_server(s.net, message);         // (3)
  if (server) chosen_ = memory_->choose(s.t);  // (4)
  if (memory_->plan().exact) {
    tell(chosen_);
    memory_->owed(chosen_, exact_);
    star_.sum_at_server(s.net, exact_);  // (5)
  }
  if (server) largest_ = memory_->largest(chosen_, exact_);  // (6)
  tell(largest_.indices);
  tell(largest_.values);
  auto small = memory_->small_tensors();
  tell(small);
  memory_->apply(s, largest_);  // (7) (8)
}

double SketchedSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const SketchPlan plan(options, q.model);
  const std::size_t told = plan.owed_count() + 2 * plan.k + plan.small_count;
  const std::size_t asked = plan.message_count() + plan.owed_count();
  const auto others = static_cast<std::size_t>(q.workers - 1);
  return static_cast<double>(sizeof(float) * (q.rank == 0 ? others * told : asked));
}

}  // namespace slipstream
