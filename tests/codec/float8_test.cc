// SPDX-License-Identifier: Apache-2.0
#include "codec/float8.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <cmath>
#include <vector>

#include "base/rng.h"

namespace slipstream {
namespace {

std::vector<float> there_and_back(const std::vector<float>& values) {
  std::vector<std::byte> record(float8_bytes(values.size()));
  float8_encode(values, record);
  std::vector<float> back(values.size());
  float8_decode(record, back);
  return back;
}

TEST(Float8, IsAtMostAnEighthOffWhateverTheUnit) {
  for (const std::size_t count : {0, 1, 5, 1024, 3001}) {
    for (const double unit : {1e-30, 1e-12, 1.0, 12345.0, 1e30}) {
      Rng random(3, count);
      std::vector<float> values(count);
      for (float& value : values) value = static_cast<float>(unit * random.normal() * std::exp(3 * random.normal()));
      const std::vector<float> back = there_and_back(values);
      float largest = 0;
      for (const float value : values) largest = std::max(largest, std::abs(value));
      for (std::size_t j = 0; j < count; ++j) {
        ASSERT_NEAR(back[j], values[j], std::max(std::abs(values[j]) / 8, 0x1p-29F * largest)) << unit;
        ASSERT_EQ(std::signbit(back[j]), std::signbit(values[j]));
      }
    }
  }
}

TEST(Float8, TakesTheEndsOfAFloatsRange) {
  EXPECT_EQ(there_and_back({0.0F, 0.0F}), (std::vector<float>{0.0F, 0.0F}));
  EXPECT_EQ(there_and_back({0x1p126F, -1.75F * 0x1p126F}), (std::vector<float>{0x1p126F, -1.75F * 0x1p126F}));
  EXPECT_EQ(there_and_back({1.0F, 1e-12F})[1], 0.0F) << "too small beside the largest";
  EXPECT_EQ(there_and_back({1e-45F})[0], 0.0F) << "too small for any factor";
}

TEST(Float8, RefusesARecordOfAnotherSize) {
  std::vector<std::byte> record(8);
  EXPECT_THROW(float8_encode(std::vector<float>(5), record), Error);
  std::vector<float> values(5);
  EXPECT_THROW(float8_decode(record, values), Error);
}

}  // namespace
}  // namespace slipstream
