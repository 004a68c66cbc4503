// SPDX-License-Identifier: Apache-2.0
#include "topology/table_sum.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "fabric/metered_fabric.h"
#include "sim/sim_world.h"

namespace slipstream {
namespace {

std::vector<float> values_of(int rank, std::size_t count) {
  Rng random(7, static_cast<std::uint64_t>(rank));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.uniform(1, 3));  // no sum is near 0
  return values;
}

std::vector<std::pair<int, Way>> every_way(const std::vector<int>& sizes) {
  std::vector<std::pair<int, Way>> all;
  for (const int ranks : sizes) {
    for (const Way way : {Way::kOwners, Way::kEverybody}) all.emplace_back(ranks, way);
  }
  return all;
}

TEST(TableSum, AllRanksHoldTheSameBitsNearTheSumsAndSendTheBytesOfItsFormula) {
  for (const auto& [ranks, way] : every_way({1, 2, 3, 4, 7})) {
    for (const auto& [cells, exact] : {std::pair<std::size_t, std::size_t>{0, 0}, {0, 3}, {1, 0}, {5, 1}, {1001, 50}}) {
      std::vector<double> want(cells + exact);
      for (int r = 0; r < ranks; ++r) {
        const auto values = values_of(r, want.size());
        for (std::size_t j = 0; j < want.size(); ++j) want[j] += values[j];
      }
      std::vector<std::vector<float>> got(static_cast<std::size_t>(ranks));
      SimWorldOptions options;
      options.ranks = ranks;
      SimWorld(options).run([&, ranks = ranks, way = way, cells = cells, exact = exact](SimPort& port) {
        MeteredFabric metered(port);
        auto values = values_of(port.rank(), cells + exact);
        TableSum().sum(metered, std::span(values).first(cells), std::span(values).last(exact), way);
        EXPECT_DOUBLE_EQ(metered.take().bytes_sent, TableSum::bytes_sent(cells, exact, ranks, way));
        got[static_cast<std::size_t>(port.rank())] = values;
      });
      for (const auto& other : got) ASSERT_EQ(other, got[0]);
      for (std::size_t j = 0; j < want.size(); ++j) {
        const double tolerance = ranks > 1 && j < cells ? 0.27 * want[j] : 1e-5;  // an eighth twice
        ASSERT_NEAR(got[0][j], want[j], tolerance) << j << " of " << cells << " and " << exact;
      }
    }
  }
}

TEST(TableSum, TakesTwoDelaysByOwnersAndOneToEverybody) {
  for (const auto& [ranks, way] : every_way({2, 16})) {
    SimWorldOptions options;
    options.ranks = ranks;
    const auto outcomes = SimWorld(options).run([way = way](SimPort& port) {
      auto values = values_of(port.rank(), 16'000);
      TableSum().sum(port, values, {}, way);
    });
    const int delays = way == Way::kEverybody ? 1 : 2;
    const double bytes = TableSum::bytes_sent(16'000, 0, ranks, way);
    EXPECT_NEAR(outcomes[0].ended_at, delays * LinkModel{}.latency_s + bytes / LinkModel{}.bytes_per_s, 3e-6);
    const double record = way == Way::kEverybody ? 16'004 : 2.0 * (16'000 / ranks + 4);  // a cell each, and a scale
    EXPECT_DOUBLE_EQ(bytes, (ranks - 1) * record);
  }
}

}  // namespace
}  // namespace slipstream
