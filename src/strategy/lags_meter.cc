// SPDX-License-Identifier: Apache-2.0
#include "strategy/lags_meter.h"

#include <algorithm>

#include "codec/sparse.h"
#include "codec/topk.h"
#include "topology/agree.h"

namespace slipstream {

namespace {

constexpr std::int64_t kNotMeasured = 3;   // steps
constexpr double kMany = 0.1;              // density of a long list
constexpr std::size_t kLooksAt = 1 << 22;  // values: a selection among more costs as much for each

}  // namespace

LagsMeter::LagsMeter(Fabric& net, std::vector<std::size_t> counts)
    : net_(net), counts_(std::move(counts)), backward_s_(counts_.size()) {}

void LagsMeter::enter(std::int64_t step, std::size_t layer) {
  if (step >= kNotMeasured && layer > 0) backward_s_[layer] += net_.clock().now() - left_at_;
}

void LagsMeter::leave() { left_at_ = net_.clock().now(); }

void LagsMeter::end_step(std::int64_t step) {
  if (step >= kNotMeasured) ++steps_;
}

std::pair<double, double> LagsMeter::handling_s(std::span<const float> values, std::size_t k, ValueFormat format) {
  TopK select;
  Sparse entries;
  std::vector<std::byte> record;
  std::vector<float> sums(values.size());
  select.pick(values, k, entries);  // once before, as in a training that has gone on for a while
  const double began = net_.clock().now();
  select.pick(values, k, entries);
  const double selected = net_.clock().now();
  sparse_payload::encode(entries, static_cast<std::uint32_t>(values.size()), format, record);
  for (int rank = 0; rank < net_.size(); ++rank) sparse_payload::add_to(record, sums, 1.0F);
  return {selected - began, net_.clock().now() - selected};
}

LagsTimes LagsMeter::take(std::span<const float> values, double density, ValueFormat format) {
  values = values.first(std::min(values.size(), kLooksAt));
  const std::size_t few = entries_at(density, values.size()), many = entries_at(kMany, values.size());
  const auto [select_few_s, use_few_s] = handling_s(values, few, format);
  const auto [select_many_s, use_many_s] = handling_s(values, many, format);
  const double more_s = std::max(0.0, select_many_s + use_many_s - select_few_s - use_few_s);
  std::vector<double> figures{select_few_s / static_cast<double>(std::max<std::size_t>(1, values.size())),
                              many > few ? more_s / static_cast<double>(many - few) : 0.0};
  for (const double seconds : backward_s_)
    figures.push_back(seconds / static_cast<double>(std::max<std::int64_t>(1, steps_)));
  agree_on_means(net_, figures);
  std::fill(backward_s_.begin(), backward_s_.end(), 0.0);
  steps_ = 0;
  return {.counts = counts_,
          .backward_s = {figures.begin() + 2, figures.end()},
          .select_s_per_element = figures[0],
          .entry_s = figures[1],
          .link = probe_link(net_)};
}

}  // namespace slipstream
