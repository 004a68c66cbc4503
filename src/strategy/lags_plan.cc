// SPDX-License-Identifier: Apache-2.0
#include "strategy/lags_plan.h"

#include <algorithm>
#include <numeric>

#include "codec/sparse.h"

namespace slipstream {
namespace {

// The wire shares processors and memory with backward and neither is as regular as a fit: a message is planned to take
// this much of the time it may hide behind.
constexpr double kHeadroom = 0.7;
constexpr double kHandling = 0.03;  // the processor's work on a group's entries, of the same time

class Planner {
 public:
  Planner(const LagsTimes& times, const LagsLimits& limits) : times_(times), limits_(limits) {}

  std::vector<LagsGroup> plan() const {
    std::vector<LagsGroup> groups = together();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const double hides_s = i + 1 < groups.size() ? kHeadroom * backward_s(groups[i + 1]) : 0.0;
      groups[i].entries = entries(groups[i].count, hides_s);
    }
    merge(groups);
    return groups;
  }

 private:
  // What comes within a message's latency of one another (a layer's bias and weight) is one layer.
  std::vector<LagsGroup> together() const {
    std::vector<LagsGroup> groups;
    for (std::size_t l = 0; l < times_.counts.size(); ++l) {
      if (l == 0 || times_.backward_s[l] > times_.link.gather.latency_s) groups.push_back({l, l, 0, 0});
      groups.back().end_layer = l + 1;
      groups.back().count += times_.counts[l];
    }
    return groups;
  }

  double backward_s(const LagsGroup& group) const {
    const auto begin = times_.backward_s.begin();
    return std::accumulate(begin + static_cast<std::ptrdiff_t>(group.first_layer),
                           begin + static_cast<std::ptrdiff_t>(group.end_layer), 0.0);
  }
  double select_s(std::size_t count) const { return times_.select_s_per_element * static_cast<double>(count); }
  std::size_t handled(double hides_s) const {
    constexpr double kMost = 4e9;  // indices have 32 bits
    return static_cast<std::size_t>(std::min(kMost, kHandling * hides_s / std::max(times_.entry_s, 1e-15)));
  }
  double gather_s(std::size_t k, std::size_t count) const {
    return times_.link.gather.seconds(limits_.record_bytes(k, count));
  }
  double sum_s(std::size_t count) const { return times_.link.sum.seconds(sizeof(float) * static_cast<double>(count)); }
  double wire_s(const LagsGroup& g) const { return g.dense() ? sum_s(g.count) : gather_s(g.entries, g.count); }

  std::size_t entries(std::size_t count, double hides_s) const {
    const std::size_t floor = entries_at(limits_.density, count);
    const double sparse_s = select_s(count) + gather_s(floor, count);
    if (sum_s(count) <= std::max(hides_s, sparse_s)) return count;
    // The largest k in [floor, ceiling] that hides; costs grow with k.
    std::size_t low = floor, high = std::max(floor, std::min(entries_at(limits_.max_density, count), handled(hides_s)));
    while (low < high) {
      const std::size_t middle = low + (high - low + 1) / 2;
      if (select_s(count) + gather_s(middle, count) <= hides_s) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  // Walks in backward order with the recurrence of wait-free back-propagation: a message starts when its layer is
  // selected and the one before it has left. Selection is as dear in one piece as in two.
  void merge(std::vector<LagsGroup>& groups) const {
    double backward_ends = 0, wire_free = 0;
    for (std::size_t i = 0; i < groups.size();) {
      const double ready =
          backward_ends + backward_s(groups[i]) + (groups[i].dense() ? 0.0 : select_s(groups[i].count));
      const double starts = std::max(ready, wire_free);
      if (i + 1 < groups.size() && groups[i].dense() == groups[i + 1].dense()) {
        const LagsGroup both{groups[i].first_layer, groups[i + 1].end_layer, groups[i].count + groups[i + 1].count,
                             groups[i].entries + groups[i + 1].entries};
        const double waits = backward_s(groups[i + 1]) - (starts - ready);
        const double saves = wire_s(groups[i]) + wire_s(groups[i + 1]) - wire_s(both);
        if (waits < saves) {
          groups[i] = both;
          groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          continue;  // the merged group may be merged again
        }
      }
      backward_ends = ready;
      wire_free = starts + wire_s(groups[i]);
      ++i;
    }
  }

  const LagsTimes& times_;
  const LagsLimits& limits_;
};

}  // namespace

std::vector<LagsGroup> plan_lags(const LagsTimes& times, const LagsLimits& limits) {
  return Planner(times, limits).plan();
}

std::vector<LagsGroup> fill_groups(const std::vector<std::size_t>& counts, std::size_t merge_elements,
                                   const std::function<std::size_t(std::size_t count)>& entries) {
  std::vector<LagsGroup> groups;
  for (std::size_t l = 0; l < counts.size(); ++l) {
    if (groups.empty() || groups.back().count >= merge_elements) groups.push_back({l, l, 0, 0});
    groups.back().end_layer = l + 1;
    groups.back().count += counts[l];
  }
  for (LagsGroup& group : groups) group.entries = entries(group.count);
  return groups;
}

}  // namespace slipstream
