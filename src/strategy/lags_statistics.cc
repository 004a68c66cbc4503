// SPDX-License-Identifier: Apache-2.0
#include "strategy/lags_statistics.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/vec.h"
#include "fabric/metered_fabric.h"

namespace slipstream {
namespace {

constexpr std::size_t kCells = 256;
constexpr std::size_t kRow = 2 * kCells + 3;

double ratio(double a, double b) { return b > 0.0 ? a / b : 0.0; }

}  // namespace

LagsStatistics::LagsStatistics() : sketch_({.rows = 1, .columns = kCells}) {}

void LagsStatistics::note(std::string group, std::span<const float> owed, const Sparse& sent, double direction_squared,
                          double age) {
  noted_.push_back(
      {std::move(group), 1.0 - static_cast<double>(sent.indices.size()) / static_cast<double>(owed.size())});
  sketch_.clear();
  sketch_.add(0, owed);
  rows_.insert(rows_.end(), sketch_.table().begin(), sketch_.table().end());
  for (std::size_t j = 0; j < sent.indices.size(); ++j) sketch_.add(sent.indices[j], std::span(&sent.values[j], 1));
  rows_.insert(rows_.end(), sketch_.table().begin(), sketch_.table().end());
  for (const double figure : {vec::sum_of_squares(owed), direction_squared, age}) {
    rows_.push_back(static_cast<float>(figure));
  }
}

void LagsStatistics::start(Fabric& net) {
  if (noted_.empty()) return;
  ranks_ = net.size();
  sum_ = net.sum(rows_);
}

std::vector<LagsFigures> LagsStatistics::take() {
  if (!sum_.active()) return {};
  sum_.wait();
  std::vector<LagsFigures> figures;
  for (std::size_t g = 0; g < noted_.size(); ++g) {
    const auto row = std::span<const float>(rows_).subspan(g * kRow, kRow);
    const double left = vec::sum_of_squares(row.first(kCells)), had = vec::sum_of_squares(row.subspan(kCells, kCells));
    const auto means = row.subspan(2 * kCells);
    figures.push_back({std::move(noted_[g].group), ratio(left, noted_[g].keeps * had),
                       std::sqrt(ratio(means[0], means[1])), static_cast<double>(means[2]) / ranks_});
  }
  noted_.clear();
  rows_.clear();
  return figures;
}

double LagsStatistics::bytes_sent(std::size_t groups, int ranks) {
  return groups == 0 ? 0 : MeteredFabric::sum_bytes(groups * kRow, ranks);
}

std::string describe(const std::vector<LagsFigures>& figures) {
  std::string text = "memory:";
  for (const LagsFigures& f : figures) {
    text += fmt::format(" [{}: delta {:.2f}, owes {:.3g} gradients{}]", f.group, f.delta, f.owed,
                        f.age < 0 ? "" : fmt::format(", sent after {:.3g} steps", f.age));
  }
  return text;
}

}  // namespace slipstream
