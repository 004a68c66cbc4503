// SPDX-License-Identifier: Apache-2.0
#include "strategy/lags_sgd.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <numeric>

#include "fabric/metered_fabric.h"

namespace slipstream {
namespace {

constexpr std::int64_t kFirstPlan = 8;  // steps before the first plan, all dense

// Layers in the order of backward, as the buckets come.
std::vector<std::size_t> backward_counts(const FlatModel& model) {
  std::vector<std::size_t> counts;
  for (auto slot = model.slots().rbegin(); slot != model.slots().rend(); ++slot) counts.push_back(slot->count);
  return counts;
}

// Before there is a plan, and where there never is one.
std::vector<LagsGroup> first_groups(const LagsOptions& options, const FlatModel& model) {
  const double density = options.adaptive ? 1.0 : options.density;
  return fill_groups(backward_counts(model), static_cast<std::size_t>(options.merge_elements),
                     [&](std::size_t count) { return entries_at(density, count); });
}

std::size_t entries_of(const LagsOptions& options, const LagsGroup& group, std::int64_t t) {
  return std::max(group.entries, options.entries(group.count, t));
}

// "from … to", by the names of its first and last parameter.
std::string name_of(const LagsGroup& group, const FlatModel& model) {
  const auto& slots = model.slots();
  const Slot &from = slots[slots.size() - group.end_layer], &to = slots[slots.size() - 1 - group.first_layer];
  return &from == &to ? from.name : from.name + " … " + to.name;
}

bool differs(double before, double now) {
  constexpr double kNoticeable = 1.3;
  return now > kNoticeable * before || before > kNoticeable * now;
}

// Would a plan for these times be another one?
bool differs(const LagsTimes& before, const LagsTimes& now) {
  constexpr double kBytes = 64 << 10;
  const auto backward = [](const LagsTimes& t) {
    return std::accumulate(t.backward_s.begin(), t.backward_s.end(), 0.0);
  };
  return differs(backward(before), backward(now)) ||
         differs(before.link.gather.seconds(kBytes), now.link.gather.seconds(kBytes)) ||
         differs(before.link.sum.seconds(kBytes), now.link.sum.seconds(kBytes));
}

}  // namespace

void LagsOptions::describe(OptionSet& o) {
  o.real("density", density, {1e-6, 1.0}, kChangesResult, "share of a layer's entries that is always sent: the floor");
  o.real_or_auto("max_density", max_density, {1e-6, 1.0}, kChangesResult,
                 "largest share that is sent as a list (at least the floor); a layer that hides as a whole is sent "
                 "dense; auto: 1 / workers, where lists become as long as a dense sum");
  o.boolean("adaptive", adaptive, kChangesResult,
            "choose groups and entries by measured times; false: the density, everywhere and always");
  o.integer("merge_elements", merge_elements, {0, 1'000'000'000}, kChangesResult,
            "before the first plan, and without plans, layers are merged until they have so many elements");
  o.integer("density_warmup", density_warmup, {0, 1'000'000'000}, kChangesResult,
            "steps over which the floor falls from 1/4 by a factor of 4 in each quarter; 0: none");
  describe_wire(o);
  o.integer("replan_every", replan_every, {0, 1'000'000'000}, kChangesResult,
            "steps after which times are measured again, and a new plan made if they changed; 0: never");
}

void LagsSgd::on_start(Step& s) {
  exchange_.emplace(options_, s);
  groups_ = first_groups(options_, s.model);
  meter_.emplace(s.net, backward_counts(s.model));
}

void LagsSgd::on_bucket_ready(Step& s, const Bucket& layer) {
  const auto l = static_cast<std::size_t>(layer.index);
  meter_->enter(s.t, l);
  const LagsGroup& group = groups_[next_];
  if (l == group.first_layer) gathering_ = {.offset = layer.offset, .end_slot = layer.end_slot};
  gathering_.offset = layer.offset;
  gathering_.first_slot = layer.first_slot;
  gathering_.count += layer.count;
  if (l + 1 == group.end_layer) {
    ++next_;
    const std::size_t k = entries_of(options_, group, s.t);
    if (k == group.count) {
      exchange_->start_dense(s, gathering_);
    } else {
      exchange_->start(s, gathering_, k);
      if (LagsStatistics::samples(s.t)) note_memory(s, group);
    }
  }
  meter_->leave();
}

void LagsSgd::on_step(Step& s) {
  exchange_->finish(s);
  next_ = 0;
  meter_->end_step(s.t);
  if (const auto figures = statistics_.take(); !figures.empty()) tell(describe(figures));  // of the step before
  statistics_.start(s.net);
  if (options_.adaptive && plans(s.t)) plan(s);  // (6)
}

void LagsSgd::note_memory(Step& s, const LagsGroup& group) {
  const auto selection = exchange_->selection(s, gathering_);
  statistics_.note(name_of(group, s.model), selection.owed, selection.sent, selection.direction_squared,
                   selection.mean_age);
}

bool LagsSgd::plans(std::int64_t t) const {
  const std::int64_t since = t + 1 - kFirstPlan;
  return since == 0 || (since > 0 && options_.replan_every > 0 && since % options_.replan_every == 0);
}

void LagsSgd::plan(Step& s) {
  const LagsTimes times = meter_->take(s.model.grads(), options_.density, options_.format());
  const bool first = s.t + 1 == kFirstPlan;
  if (!first && !differs(planned_with_, times)) return;
  planned_with_ = times;
  const double ceiling = options_.max_density.value_or(1.0 / s.net.size());
  groups_ =
      plan_lags(times, {options_.density, ceiling, [format = options_.format()](std::size_t k, std::size_t count) {
                          return SparseGather::bytes_sent(k, count, format, 2);
                        }});
  tell(describe_plan(s.model));
}

std::string LagsSgd::describe_plan(const FlatModel& model) const {
  const LinkCost& link = planned_with_.link.gather;
  std::string text = fmt::format(
      "plan for a link of {:.4g} Mb/s and {:.3g} ms:", 8e-6 / std::max(link.s_per_byte, 1e-12), 1e3 * link.latency_s);
  for (const LagsGroup& g : groups_) {
    text += fmt::format(" [{}: {} of {}]", name_of(g, model),
                        g.dense() ? "dense, all"
                                  : fmt::format("{} ({:.2g} %)", g.entries,
                                                100.0 * static_cast<double>(g.entries) / static_cast<double>(g.count)),
                        g.count);
  }
  return text;
}

// The plan by layer: the group's number and, on its first layer, its entries.
void LagsSgd::visit(StateVisitor& v) {
  exchange_->visit(v);
  std::vector<LagsGroup> by_layer(meter_->counts().size());
  for (const LagsGroup& group : groups_) by_layer[group.first_layer] = group;
  groups_.clear();
  for (std::size_t l = 0; l < by_layer.size(); ++l) {
    auto end = static_cast<std::int64_t>(by_layer[l].end_layer),
         entries = static_cast<std::int64_t>(by_layer[l].entries);
    v.integer(fmt::format("layer {} opens a group up to", l), end);
    v.integer(fmt::format("layer {} entries", l), entries);
    if (end == 0) continue;
    LagsGroup group{l, static_cast<std::size_t>(end), 0, static_cast<std::size_t>(entries)};
    for (std::size_t i = l; i < group.end_layer; ++i) group.count += meter_->counts()[i];
    groups_.push_back(group);
  }
}

double LagsSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  double bytes = 0;
  std::size_t sparse = 0;
  for (const LagsGroup& g : first_groups(options, q.model)) {
    const std::size_t k = entries_of(options, g, q.t);
    if (g.count == 0) continue;
    sparse += k < g.count ? 1 : 0;
    bytes += k == g.count ? MeteredFabric::sum_bytes(g.count, q.workers)
                          : SparseGather::bytes_sent(k, g.count, options.format(), q.workers);
  }
  return bytes + (LagsStatistics::samples(q.t) ? LagsStatistics::bytes_sent(sparse, q.workers) : 0.0);
}

}  // namespace slipstream
