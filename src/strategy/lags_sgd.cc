// SPDX-License-Identifier: Apache-2.0
#include "strategy/lags_sgd.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <utility>

#include "fabric/metered_fabric.h"
#include "topology/agree.h"

namespace slipstream {
namespace {

constexpr std::int64_t kFirstPlan = 12;   // steps before the first plan …
constexpr std::int64_t kNotMeasured = 3;  // … of which so many are too irregular to count

// Layers in the order of backward, as the buckets come.
std::vector<std::size_t> backward_counts(const FlatModel& model) {
  std::vector<std::size_t> counts;
  for (auto slot = model.slots().rbegin(); slot != model.slots().rend(); ++slot) counts.push_back(slot->count);
  return counts;
}

std::vector<LagsGroup> first_groups(const LagsOptions& options, const FlatModel& model) {
  return fill_groups(backward_counts(model), static_cast<std::size_t>(options.merge_elements),
                     [&](std::size_t count) { return entries_at(options.density, count); });
}

bool differs(const LinkCost& a, const LinkCost& b) {
  constexpr double kBytes = 64 << 10, kNoticeable = 1.3;
  const double before = a.seconds(kBytes), now = b.seconds(kBytes);
  return now > kNoticeable * before || before > kNoticeable * now;
}

}  // namespace

void LagsOptions::describe(OptionSet& o) {
  o.real("density", density, {1e-6, 1.0}, kChangesResult, "share of a layer's entries that is always sent: the floor");
  o.real("max_density", max_density, {1e-6, 1.0}, kChangesResult,
         "largest share that is sent as a list (at least the floor); a layer that hides as a whole is sent dense");
  o.boolean("adaptive", adaptive, kChangesResult,
            "choose groups and entries by measured times; false: the density, everywhere and always");
  o.integer("merge_elements", merge_elements, {0, 1'000'000'000}, kChangesResult,
            "before the first plan, and without plans, layers are merged until they have so many elements");
  o.choice("momentum", momentum, {"after", "corrected"}, kChangesResult,
           "momentum on the sum, as the optimizer does it, or on each worker before selection (DGC; sgd only)");
  o.integer("density_warmup", density_warmup, {0, 1'000'000'000}, kChangesResult,
            "steps over which the floor falls from 1/4 by a factor of 4 in each quarter; 0: none");
  o.boolean("lr_inside", lr_inside, kChangesResult,
            "owe lr × gradient (the paper's theory) and not the gradient (the paper's code)");
  o.integer("replan_every", replan_every, {0, 1'000'000'000}, kChangesResult,
            "steps after which the link is measured again, and a new plan made if it changed; 0: never");
}

void LagsSgd::on_start(Step& s) {
  options_.check_optimizer(s.opt.options());
  exchange_.emplace(options_, s.model);
  groups_ = first_groups(options_, s.model);
  times_.counts = backward_counts(s.model);
  times_.backward_s.assign(times_.counts.size(), 0.0);
}

void LagsSgd::on_bucket_ready(Step& s, const Bucket& layer) {
  const double entered_at = s.net.clock().now();
  const auto l = static_cast<std::size_t>(layer.index);
  const LagsGroup& group = groups_[next_];
  if (l == group.first_layer) gathering_ = {.offset = layer.offset, .end_slot = layer.end_slot};
  gathering_.offset = layer.offset;
  gathering_.first_slot = layer.first_slot;
  gathering_.count += layer.count;
  if (l + 1 == group.end_layer) {
    ++next_;
    const std::size_t k = entries(group, s.t);
    if (k == group.count) {
      exchange_->start_dense(s, gathering_);  // (1) (2) (3)
    } else {
      exchange_->start(s, gathering_, k);  // (1) (2) (3)
    }
  }
  const double now = s.net.clock().now();
  if (s.t >= kNotMeasured) {
    if (l > 0) times_.backward_s[l] += entered_at - left_at_;
    if (l + 1 == group.end_layer && !group.dense()) {
      select_s_ += now - entered_at;
      selected_ += group.count;
    }
  }
  left_at_ = now;
}

void LagsSgd::on_step(Step& s) {
  exchange_->finish(s);  // (4) (5)
  next_ = 0;
  if (s.t >= kNotMeasured) ++measured_;
  if (options_.adaptive && plans(s.t)) plan(s);  // (6)
}

std::size_t LagsSgd::entries(const LagsGroup& group, std::int64_t t) const {
  return std::max(group.entries, options_.entries(group.count, t));
}

bool LagsSgd::plans(std::int64_t t) const {
  const std::int64_t since = t + 1 - kFirstPlan;
  return since == 0 || (since > 0 && options_.replan_every > 0 && since % options_.replan_every == 0);
}

void LagsSgd::plan(Step& s) {
  const LinkCosts link = probe_link(s.net);
  const bool first = s.t + 1 == kFirstPlan;
  LagsTimes mean = times_;
  mean.backward_s.push_back(selected_ > 0 ? select_s_ / static_cast<double>(selected_) : 0.0);
  for (std::size_t l = 0; l < times_.counts.size(); ++l) mean.backward_s[l] /= static_cast<double>(measured_);
  agree_on_means(s.net, mean.backward_s);
  if (!first && !differs(times_.link.gather, link.gather) && !differs(times_.link.sum, link.sum)) return;
  mean.select_s_per_element = mean.backward_s.back();
  mean.backward_s.pop_back();
  mean.link = times_.link = link;
  groups_ = plan_lags(mean, {options_.density, options_.max_density, [&](std::size_t k, std::size_t count) {
                               return SparseGather::bytes_sent(k, count, sparse_payload::ValueFormat::kFp32, 2);
                             }});
  news_ = describe_plan(s.model);
}

std::string LagsSgd::describe_plan(const FlatModel& model) const {
  const LinkCost& link = times_.link.gather;
  std::string text = fmt::format(
      "plan for a link of {:.4g} Mb/s and {:.3g} ms:", 8e-6 / std::max(link.s_per_byte, 1e-12), 1e3 * link.latency_s);
  const auto& slots = model.slots();
  for (const LagsGroup& g : groups_) {
    const Slot &from = slots[slots.size() - g.end_layer], &to = slots[slots.size() - 1 - g.first_layer];
    text += fmt::format(" [{}{}: {} of {}]", from.name, &from == &to ? "" : " … " + to.name,
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
  std::vector<LagsGroup> by_layer(times_.counts.size());
  for (const LagsGroup& group : groups_) by_layer[group.first_layer] = group;
  groups_.clear();
  for (std::size_t l = 0; l < by_layer.size(); ++l) {
    auto end = static_cast<std::int64_t>(by_layer[l].end_layer),
         entries = static_cast<std::int64_t>(by_layer[l].entries);
    v.integer(fmt::format("layer {} opens a group up to", l), end);
    v.integer(fmt::format("layer {} entries", l), entries);
    if (end == 0) continue;
    LagsGroup group{l, static_cast<std::size_t>(end), 0, static_cast<std::size_t>(entries)};
    for (std::size_t i = l; i < group.end_layer; ++i) group.count += times_.counts[i];
    groups_.push_back(group);
  }
}

double LagsSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  double bytes = 0;
  for (const LagsGroup& g : first_groups(options, q.model)) {
    const std::size_t k = std::max(g.entries, options.entries(g.count, q.t));
    if (g.count == 0) continue;
    bytes += k == g.count ? MeteredFabric::sum_bytes(g.count, q.workers)
                          : SparseGather::bytes_sent(k, g.count, sparse_payload::ValueFormat::kFp32, q.workers);
  }
  return bytes;
}

StrategyInfo LagsSgd::info() {
  return {
      .name = "lags",
      .title = "LAGS-SGD: each layer's largest entries leave during backward, as many as hide behind it",
      .paper =
          "S. Shi, Z. Tang, Q. Wang, K. Zhao, X. Chu, Layer-Wise Adaptive Gradient Sparsification for Distributed Deep "
          "Learning with Convergence Guarantees, ECAI 2020 (arXiv 1911.08727)",
      .pseudo_code = {"as soon as the gradient of group l is there (l = L … 1):",
                      "  (1) u_l <- m u_l + g_l;  e_l <- e_l + u_l       momentum=after: e_l + g_l",
                      "  (2) s_l <- the k_l largest entries of e_l, moved out of e_l; all where the plan says dense",
                      "  (3) start the all-gather of s_l                 it overlaps the backward of l-1 … 1",
                      "after backward:", "  (4) G_l <- sum over workers of s_l",
                      "  (5) w <- w - lr G / P                           momentum=after: w - step(G / P)",
                      "  (6) after the first steps, and every so often: measure, agree, plan groups and k_l anew"},
      .bytes_per_step =
          "the plan decides, between (P-1) × about 5.6 bytes × density × parameters and a dense sum; --verbose shows "
          "it",
      .waits_for = "after backward, for what of all workers' messages did not hide behind it",
      .notes =
          {"The plan: the first 12 steps run at the density; then backward times by layer, the cost of selection "
           "and the wire's latency and rate are known. Each layer gets the most entries whose message hides "
           "behind the backward of the next one (with 30 % to spare), never fewer than density nor more than "
           "max_density; a layer that hides as a whole, or is cheaper so, is sent dense.",
           "On a fast link most of the model is dense, on a slow one the floor rules.",
           "Neighbours are merged where one message is cheaper than two (OMGS-SGD).",
           "The paper's code runs at one density; the rule is its text's. Selection is exact.",
           "Nothing is lost: what is not sent is added to the next gradient.",
           "adaptive=true lets times decide, so two runs may differ; replicas of one run never do.",
           "momentum=corrected (each worker's velocity is selected from, and forgotten where it was sent) costs no "
           "accuracy in our runs; momentum=after, as in the authors' code, does. It needs optimizer=sgd without "
           "Nesterov and without clip_norm; with any other optimizer use momentum=after."},
      .configure = [] { return configure_strategy<LagsSgd>("lags"); },
  };
}

}  // namespace slipstream
