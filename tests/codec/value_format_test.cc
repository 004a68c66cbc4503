// SPDX-License-Identifier: Apache-2.0
#include "codec/value_format.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace slipstream {
namespace {

constexpr ValueFormat kFormats[] = {ValueFormat::kFp32, ValueFormat::kFp16, ValueFormat::kBf16, ValueFormat::kInt8};

TEST(ValueFormat, AListIsReadAsRoundAsSentTellsWholeAndInBlocks) {
  Rng rng(3);
  for (const ValueFormat format : kFormats) {
    for (const std::size_t count : {0, 1, 255, 256, 257, 1000}) {
      std::vector<float> values(count), whole(count), blocks(count);
      for (float& x : values) x = static_cast<float>(rng.normal());
      std::vector<std::byte> bytes(values_bytes(count, format) + 1, std::byte{0xA5});
      write_values(values, format, bytes.data());
      EXPECT_EQ(bytes.back(), std::byte{0xA5}) << "written beyond its bytes";
      read_values(bytes.data(), format, whole);
      each_value_block(bytes.data(), count, format, [&](std::size_t first, std::span<const float> part) {
        std::copy(part.begin(), part.end(), blocks.begin() + static_cast<std::ptrdiff_t>(first));
      });
      round_as_sent(values, format);
      EXPECT_EQ(whole, values);
      EXPECT_EQ(blocks, values);
      if (format == ValueFormat::kInt8) continue;  // its scale is rounded, too
      round_as_sent(whole, format);
      EXPECT_EQ(whole, values) << "rounded once is rounded";
    }
  }
}

TEST(ValueFormat, TheNamesAreThoseOfOptions) {
  EXPECT_EQ(parse_value_format("fp32"), ValueFormat::kFp32);
  EXPECT_EQ(parse_value_format("fp16"), ValueFormat::kFp16);
  EXPECT_EQ(parse_value_format("bf16"), ValueFormat::kBf16);
  EXPECT_EQ(parse_value_format("int8"), ValueFormat::kInt8);
  EXPECT_THROW(parse_value_format("fp64"), ConfigError);
}

TEST(ValueFormat, Int8IsWithinHalfALevelOfTheLargestValueOfItsBlock) {
  Rng rng(8);
  for (const float size : {1e-44F, 1e-38F, 1.0F, 3e37F}) {
    std::vector<float> values(1000);
    for (float& x : values) x = size * static_cast<float>(rng.normal());
    std::vector<float> sent = values;
    round_as_sent(sent, ValueFormat::kInt8);
    for (std::size_t block = 0; block < values.size(); block += 256) {
      double largest = 0;
      const std::size_t end = std::min(values.size(), block + 256);
      for (std::size_t i = block; i < end; ++i) largest = std::max<double>(largest, std::abs(values[i]));
      for (std::size_t i = block; i < end; ++i) {
        const double allowed = size < 1e-40F ? largest : 0.5001 * largest / 127;
        EXPECT_LE(std::abs(static_cast<double>(values[i]) - sent[i]), allowed) << size;
      }
    }
  }
  std::vector<float> zeros(3), bad{1.0F, std::numeric_limits<float>::infinity()};
  round_as_sent(zeros, ValueFormat::kInt8);
  EXPECT_EQ(zeros, std::vector<float>(3));
  round_as_sent(bad, ValueFormat::kInt8);
  EXPECT_TRUE(std::isnan(bad[0]) && std::isnan(bad[1])) << "never a number that nobody sent";
}

}  // namespace
}  // namespace slipstream
