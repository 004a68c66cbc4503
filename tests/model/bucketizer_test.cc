// SPDX-License-Identifier: Apache-2.0
#include "model/bucketizer.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace slipstream {
namespace {

class BucketizerTest : public testing::Test {
 protected:
  // Slots 0..4, buckets: 0 = {3, 4}, 1 = {1, 2}, 2 = {0}.
  FlatModel model_{{{"a", 8}, {"b", 4}, {"c", 4}, {"d", 4}, {"e", 4}}};
  std::vector<int> released_;
  Bucketizer bucketizer_{model_, plan_buckets(model_, BucketRule::by_bytes(32, 32)),
                         [this](const Bucket& bucket) { released_.push_back(bucket.index); }};
};

TEST_F(BucketizerTest, ReleasesABucketWithItsLastSlot) {
  bucketizer_.slot_ready(4);
  EXPECT_TRUE(released_.empty());
  bucketizer_.slot_ready(3);
  EXPECT_EQ(released_, (std::vector<int>{0}));
}

TEST_F(BucketizerTest, HoldsALaterBucketBackUntilTheEarlierAreOut) {
  bucketizer_.slot_ready(0);
  bucketizer_.slot_ready(1);
  bucketizer_.slot_ready(2);
  bucketizer_.slot_ready(3);
  EXPECT_TRUE(released_.empty());
  bucketizer_.slot_ready(4);
  EXPECT_EQ(released_, (std::vector<int>{0, 1, 2}));
}

TEST_F(BucketizerTest, RefusesASecondReportOfASlotAndNamesIt) {
  bucketizer_.slot_ready(4);
  try {
    bucketizer_.slot_ready(4);
    FAIL() << "the second report was taken";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("'" + model_.slots()[4].name + "'"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("hold()"), std::string::npos) << e.what();
  }
}

TEST_F(BucketizerTest, TheEndOfBackwardReleasesWhatIsLeftOnce) {
  bucketizer_.slot_ready(3);
  bucketizer_.slot_ready(4);
  bucketizer_.finish_backward();
  bucketizer_.finish_backward();
  EXPECT_EQ(released_, (std::vector<int>{0, 1, 2}));
}

TEST_F(BucketizerTest, EveryStepStartsAnew) {
  bucketizer_.slot_ready(4);
  bucketizer_.finish_backward();
  released_.clear();
  bucketizer_.begin_step();
  bucketizer_.slot_ready(3);
  EXPECT_TRUE(released_.empty()) << "slot 4 of the last step must not count";
  bucketizer_.slot_ready(4);
  EXPECT_EQ(released_, (std::vector<int>{0}));
}

TEST_F(BucketizerTest, RefusesASlotThatDoesNotExist) { EXPECT_THROW(bucketizer_.slot_ready(5), Error); }

TEST_F(BucketizerTest, EveryOrderOfSlotsGivesTheSameOrderOfBuckets) {
  std::vector<std::size_t> order = {0, 1, 2, 3, 4};
  do {
    bucketizer_.begin_step();
    released_.clear();
    for (const std::size_t slot : order) bucketizer_.slot_ready(slot);
    ASSERT_EQ(released_, (std::vector<int>{0, 1, 2}));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Bucketizer, OfAnEmptyModelReleasesNothing) {
  const FlatModel none({});
  int released = 0;
  Bucketizer bucketizer(none, {}, [&](const Bucket&) { ++released; });
  bucketizer.finish_backward();
  EXPECT_EQ(released, 0);
}

}  // namespace
}  // namespace slipstream
