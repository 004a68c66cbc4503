// SPDX-License-Identifier: Apache-2.0
#include "strategy/lags_plan.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

// Eight bytes an entry, no header.
LagsLimits limits() {
  return {.density = 0.01, .max_density = 0.25, .record_bytes = [](std::size_t k, std::size_t) { return 8.0 * k; }};
}

// Three layers of a thousand elements whose backward takes 10 ms each.
LagsTimes times(double latency_s, double bytes_per_s) {
  const LinkCost cost{latency_s, 1 / bytes_per_s};
  return {{1000, 1000, 1000}, {0.010, 0.010, 0.010}, 0.0, 0.0, {cost, cost}};
}

std::vector<std::size_t> entries(const std::vector<LagsGroup>& groups) {
  std::vector<std::size_t> all;
  for (const LagsGroup& group : groups) all.push_back(group.entries);
  return all;
}

TEST(LagsPlan, TakesAsManyEntriesAsHideBehindTheNextLayer) {
  // 7 of the 10 ms may be filled: 700 bytes at 100 kB/s are 87 entries; nothing follows the last layer.
  EXPECT_EQ(entries(plan_lags(times(0, 1e5), limits())), (std::vector<std::size_t>{87, 87, 10}));
}

TEST(LagsPlan, LatencyAndSelectionTakeTheirPart) {
  auto slow = times(0.0011, 1e5);
  EXPECT_EQ(entries(plan_lags(slow, limits())), (std::vector<std::size_t>{73, 73, 10}));
  slow.select_s_per_element = 1e-6;
  EXPECT_EQ(entries(plan_lags(slow, limits())), (std::vector<std::size_t>{61, 61, 10}));
}

TEST(LagsPlan, StaysBetweenFloorAndCeiling) {
  // Nothing hides. The first leaves at once; the others queue up behind it and are cheaper as one.
  EXPECT_EQ(entries(plan_lags(times(0.001, 1e3), limits())), (std::vector<std::size_t>{10, 20}));
  EXPECT_EQ(entries(plan_lags(times(0, 5e5), limits())), (std::vector<std::size_t>{250, 250, 10}));
}

TEST(LagsPlan, TakesNoMoreEntriesThanTheProcessorHandlesInPassing) {
  auto busy = times(0, 1e5);
  busy.entry_s = 9.9e-6;  // 3 % of 7 ms are 21 of them
  EXPECT_EQ(entries(plan_lags(busy, limits())), (std::vector<std::size_t>{21, 21, 10}));
  busy.entry_s = 1e-3;
  EXPECT_EQ(entries(plan_lags(busy, limits())), (std::vector<std::size_t>{10, 10, 10})) << "the floor stays";
}

TEST(LagsPlan, GoesDenseWhereTheWholeLayerHides) {
  const auto groups = plan_lags(times(0, 1e6), limits());  // 4 ms for 4000 bytes
  EXPECT_EQ(entries(groups), (std::vector<std::size_t>{1000, 1000, 10}));
  EXPECT_TRUE(groups[0].dense());
  EXPECT_FALSE(groups[2].dense());
}

TEST(LagsPlan, ALayerThatIsCheaperDenseIsDense) {
  auto costly = times(0, 1e9);
  costly.select_s_per_element = 1e-6;  // a millisecond, against 4 µs on the wire
  const auto groups = plan_lags(costly, limits());
  EXPECT_TRUE(groups.back().dense());
}

TEST(LagsPlan, MergesWhereWaitingIsCheaperThanAMessage) {
  auto tiny = times(0.020, 1e9);  // a message costs two layers' backward
  const auto groups = plan_lags(tiny, limits());
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].end_layer, 3U);
  EXPECT_EQ(groups[0].count, 3000U);
  tiny.link.gather.latency_s = tiny.link.sum.latency_s = 0.0001;
  EXPECT_GT(plan_lags(tiny, limits()).size(), 1U);
}

TEST(LagsPlan, TakesEmptyLayersAndNone) {
  EXPECT_TRUE(plan_lags({}, limits()).empty());
  LagsTimes odd{{0, 1, 0, 5}, {0, 0, 0, 0}, 1e-9, 0.0, {{1e-3, 1e-6}, {1e-3, 1e-6}}};
  std::size_t layer = 0;
  for (const LagsGroup& group : plan_lags(odd, limits())) {
    EXPECT_EQ(group.first_layer, layer);
    EXPECT_LE(group.entries, group.count);
    layer = group.end_layer;
  }
  EXPECT_EQ(layer, 4U) << "every layer is in a group";
}

TEST(LagsPlan, WithoutMeasurementsGroupsAreFilledToASize) {
  const auto tenth = [](std::size_t count) { return count / 10; };
  const auto groups = fill_groups({10, 90, 200, 5}, 100, tenth);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0], (LagsGroup{0, 2, 100, 10}));
  EXPECT_EQ(groups[1], (LagsGroup{2, 3, 200, 20}));
  EXPECT_EQ(groups[2], (LagsGroup{3, 4, 5, 0}));
  EXPECT_EQ(fill_groups({10, 90, 200, 5}, 0, tenth).size(), 4U) << "0 keeps every layer apart";
}

}  // namespace
}  // namespace slipstream
