// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <slipstream/optim/parameter_group.h>

#include <tuple>

namespace slipstream {
namespace {

using Pieces = std::vector<std::tuple<std::size_t, std::size_t, int>>;  // begin, count, group

Pieces pieces(const GroupMap& map, std::size_t offset, std::size_t count) {
  Pieces all;
  map.each(offset, count, [&](std::size_t at, std::size_t size, int group) { all.emplace_back(at, size, group); });
  return all;
}

GroupMap sample() {
  GroupMap map;
  map.append(3, 0);
  map.append(0, 5);
  map.append(2, 0);
  map.append(4, GroupMap::kNone);
  map.append(1, 1);
  return map;
}

TEST(GroupMap, NeighboursOfOneGroupAreOneStretch) {
  EXPECT_EQ(pieces(sample(), 0, 10), (Pieces{{0, 5, 0}, {5, 4, GroupMap::kNone}, {9, 1, 1}}));
  EXPECT_EQ(sample().size(), 10U);
}

TEST(GroupMap, ARangeBeginsAndEndsWithinStretches) {
  EXPECT_EQ(pieces(sample(), 4, 3), (Pieces{{4, 1, 0}, {5, 2, GroupMap::kNone}}));
  EXPECT_EQ(pieces(sample(), 5, 4), (Pieces{{5, 4, GroupMap::kNone}}));
  EXPECT_EQ(pieces(sample(), 9, 1), (Pieces{{9, 1, 1}}));
  EXPECT_EQ(pieces(sample(), 10, 0), Pieces{});
}

TEST(GroupMap, WithoutGroupsEveryRangeIsOnePiece) {
  EXPECT_EQ(pieces(GroupMap(), 7, 1000), (Pieces{{7, 1000, GroupMap::kNone}}));
  EXPECT_TRUE(GroupMap().part(3, 5).stretches().empty());
}

TEST(GroupMap, APartCountsFromItsOwnBegin) {
  EXPECT_EQ(pieces(sample().part(4, 6), 0, 6), (Pieces{{0, 1, 0}, {1, 4, GroupMap::kNone}, {5, 1, 1}}));
}

}  // namespace
}  // namespace slipstream
