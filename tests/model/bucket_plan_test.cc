// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <slipstream/model/bucket_plan.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

namespace slipstream {
namespace {

FlatModel model_of(const std::vector<std::size_t>& counts) {
  std::vector<Parameter> parameters;
  for (const std::size_t count : counts) parameters.push_back({"p" + std::to_string(parameters.size()), count});
  return FlatModel(parameters);
}

std::vector<std::size_t> sizes(const std::vector<Bucket>& plan) {
  std::vector<std::size_t> result;
  for (const Bucket& bucket : plan) result.push_back(bucket.count);
  return result;
}

TEST(BucketPlan, PerSlotGivesEverySlotItsBucketFromTheLastOn) {
  EXPECT_EQ(sizes(plan_buckets(model_of({5, 0, 1, 7}), BucketRule::per_slot())),
            (std::vector<std::size_t>{7, 1, 0, 5}));
}

TEST(BucketPlan, ClosesABucketOnceItHoldsTheBytes) {
  const FlatModel model = model_of({10, 10, 10, 10, 10, 10});
  EXPECT_EQ(sizes(plan_buckets(model, BucketRule::by_bytes(80, 80))), (std::vector<std::size_t>{20, 20, 20}));
  EXPECT_EQ(sizes(plan_buckets(model, BucketRule::by_bytes(81, 81))), (std::vector<std::size_t>{30, 30}));
  EXPECT_EQ(sizes(plan_buckets(model, BucketRule::by_bytes(1, 120))), (std::vector<std::size_t>{10, 30, 20}));
  EXPECT_EQ(sizes(plan_buckets(model, BucketRule::by_bytes(1 << 20, 1 << 20))), (std::vector<std::size_t>{60}));
}

TEST(BucketPlan, ALargeSlotIsNeverCut) {
  EXPECT_EQ(sizes(plan_buckets(model_of({3, 1000, 3}), BucketRule::by_bytes(40, 40))),
            (std::vector<std::size_t>{1003, 3}));
}

TEST(BucketPlan, OfAnEmptyModelIsEmpty) { EXPECT_TRUE(plan_buckets(model_of({}), BucketRule::per_slot()).empty()); }

TEST(BucketPlan, CoversEverySlotOnceInReverseForAnyModelAndRule) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::size_t> counts(random() % 20);
    for (std::size_t& count : counts) count = random() % 4 == 0 ? random() % 2 : random() % 100;
    const FlatModel model = model_of(counts);
    const BucketRule rule = BucketRule::by_bytes(random() % 300, random() % 600);
    const std::vector<Bucket> plan = plan_buckets(model, rule);

    std::size_t end_slot = counts.size(), end = model.count();
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const Bucket& bucket = plan[i];
      ASSERT_EQ(bucket.index, static_cast<int>(i));
      ASSERT_EQ(bucket.end_slot, end_slot) << "seed " << seed;
      ASSERT_LT(bucket.first_slot, bucket.end_slot);
      ASSERT_EQ(bucket.offset + bucket.count, end);
      ASSERT_EQ(bucket.offset, model.slots()[bucket.first_slot].offset);
      const std::size_t limit = i == 0 ? rule.first_bytes : rule.bytes;
      if (i + 1 < plan.size()) {
        ASSERT_GE(bucket.count * sizeof(float), limit);
      }
      end_slot = bucket.first_slot;
      end = bucket.offset;
    }
    ASSERT_EQ(end_slot, 0U);
    ASSERT_EQ(end, 0U);
  }
}

}  // namespace
}  // namespace slipstream
