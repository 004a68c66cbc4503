// SPDX-License-Identifier: Apache-2.0
#include <slipstream/model/bucket_plan.h>

namespace slipstream {

std::vector<Bucket> plan_buckets(const FlatModel& model, BucketRule rule) {
  const auto& slots = model.slots();
  std::vector<Bucket> plan;
  for (std::size_t end = slots.size(); end > 0;) {
    const std::size_t limit = plan.empty() ? rule.first_bytes : rule.bytes;
    Bucket bucket{static_cast<int>(plan.size()), 0, 0, end, end};
    do {
      const Slot& slot = slots[--bucket.first_slot];
      bucket.offset = slot.offset;
      bucket.count += slot.count;
    } while (bucket.first_slot > 0 && bucket.count * sizeof(float) < limit);
    end = bucket.first_slot;
    plan.push_back(bucket);
  }
  return plan;
}

}  // namespace slipstream
