// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <slipstream/model/flat_model.h>

#include <algorithm>
#include <cstdint>

namespace slipstream {
namespace {

TEST(FlatModel, LaysSlotsOutInOrderWithoutGaps) {
  const FlatModel model({{"a", 5}, {"empty", 0}, {"b", 1}, {"c", 7}});
  EXPECT_EQ(model.count(), 13U);
  ASSERT_EQ(model.slots().size(), 4U);
  std::size_t offset = 0;
  for (const Slot& slot : model.slots()) {
    EXPECT_EQ(slot.offset, offset) << slot.name;
    offset += slot.count;
  }
  EXPECT_EQ(offset, model.count());
  EXPECT_EQ(model.slots()[1].name, "empty");
}

TEST(FlatModel, StartsAsZerosOnACacheLine) {
  FlatModel model({{"a", 100}});
  for (const std::span<float> range : {model.weights(), model.grads()}) {
    EXPECT_EQ(range.size(), 100U);
    EXPECT_TRUE(std::all_of(range.begin(), range.end(), [](float x) { return x == 0.0F; }));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range.data()) % 64, 0U);
  }
}

TEST(FlatModel, WeightsAndGradientsAreSeparate) {
  FlatModel model({{"a", 3}});
  std::ranges::fill(model.weights(), 1.0F);
  std::ranges::fill(model.grads(), 2.0F);
  EXPECT_EQ(model.weights()[2], 1.0F);
  EXPECT_EQ(model.grads()[0], 2.0F);
}

TEST(FlatModel, ABucketIsAViewOfItsRange) {
  FlatModel model({{"a", 4}, {"b", 6}});
  const Bucket bucket{.index = 0, .offset = 4, .count = 6, .first_slot = 1, .end_slot = 2};
  EXPECT_EQ(model.weights(bucket).data(), model.weights().data() + 4);
  EXPECT_EQ(model.grads(bucket).data(), model.grads().data() + 4);
  EXPECT_EQ(model.grads(bucket).size(), 6U);
}

TEST(FlatModel, FindsTheSlotOfEveryElementPastEmptyOnes) {
  const FlatModel model({{"none", 0}, {"a", 2}, {"gap", 0}, {"b", 3}, {"end", 0}});
  for (std::size_t i = 0; i < model.count(); ++i) EXPECT_EQ(model.slot_at(i).name, i < 2 ? "a" : "b") << i;
  EXPECT_THROW(model.slot_at(5), Error);
}

TEST(FlatModel, MayBeEmpty) {
  FlatModel none({});
  EXPECT_EQ(none.count(), 0U);
  EXPECT_TRUE(none.weights().empty());
  EXPECT_THROW(none.slot_at(0), Error);
}

}  // namespace
}  // namespace slipstream
