// SPDX-License-Identifier: Apache-2.0
#include "strategy/sketched_sgd.h"

#include "topology/pick_exchange.h"

namespace slipstream {

void SketchedSgd::on_start(Step& s) {
  memory_.emplace(options_, s.model, s.opt.memory(), ValueFormat::kFp32);
  const SketchPlan& plan = memory_->plan();
  chosen_.resize(plan.chosen);
  sent_.resize(plan.chosen);
  picked_.indices.resize(plan.k);
  picked_.values.resize(plan.k);
}

void SketchedSgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  memory_->add(s, bucket);  // (1)
}

void SketchedSgd::on_step(Step& s) {
  const bool server = s.net.rank() == 0;
  const auto tell = [&](auto&& values) { Star::broadcast(s.net, std::as_writable_bytes(std::span(values))); };
  star_.sum_at_server(s.net, memory_->small());
  tell(memory_->small());
  star_.sum_at_server(s.net, memory_->table());  // (2) (3)
  if (server) chosen_ = memory_->choose(s.t);    // (4)
  tell(chosen_);
  memory_->chosen(chosen_);
  memory_->leaving(s, chosen_, sent_);
  std::vector<float> sums = sent_;
  star_.sum_at_server(s.net, sums);                                                      // (5)
  if (server) picked_ = pick_by_shares(sums, memory_->plan().k, s.net.size(), select_);  // (6)
  tell(picked_.indices);
  tell(picked_.values);
  memory_->follow_recall(s, picked_, memory_->plan().most_columns);
  memory_->apply(s, picked_, sent_);  // (7) (8)
}

double SketchedSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const SketchPlan plan(options, q.model, ValueFormat::kFp32);
  const std::size_t cells = plan.coordinates == 0 ? 0 : SketchPlan::cells(plan.shape);
  const std::size_t told = plan.chosen + 2 * plan.k + plan.small_count;
  const std::size_t asked = cells + plan.small_count + plan.chosen;
  const auto others = static_cast<std::size_t>(q.workers - 1);
  const bool looks =
      !options.columns && !plan.shape.identity && plan.coordinates > 0 && SketchPlan::looks_at_recall(q.t);
  return static_cast<double>(sizeof(float) * (q.rank == 0 ? others * told : asked)) +
         (looks ? SketchMemory::recall_bytes(plan, q.workers) : 0.0);
}

}  // namespace slipstream
