// SPDX-License-Identifier: Apache-2.0
#include "codec/half.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <cmath>
#include <limits>
#include <vector>

namespace slipstream {
namespace {

std::vector<float> round_trip(HalfKind kind, const std::vector<float>& values) {
  std::vector<std::uint16_t> payload(values.size());
  std::vector<float> back(values.size());
  half_encode(kind, values, payload);
  half_decode(kind, payload, back);
  return back;
}

TEST(Half, WritesThePublishedBitPatterns) {
  const std::vector<float> values = {1.0F, -2.0F, 0.5F, 0.0F, -0.0F};
  std::vector<std::uint16_t> payload(values.size());
  half_encode(HalfKind::kFp16, values, payload);
  EXPECT_EQ(payload, (std::vector<std::uint16_t>{0x3C00, 0xC000, 0x3800, 0x0000, 0x8000}));
  half_encode(HalfKind::kBf16, values, payload);
  EXPECT_EQ(payload, (std::vector<std::uint16_t>{0x3F80, 0xC000, 0x3F00, 0x0000, 0x8000}));
}

TEST(Half, ErrsByHalfAUnitAtMost) {
  std::vector<float> values;
  for (int i = 1; i < 2000; ++i) values.push_back(std::sqrt(static_cast<float>(i)) * (i % 2 == 0 ? 1.0F : -1.0F));
  const std::vector<float> fp16 = round_trip(HalfKind::kFp16, values);
  const std::vector<float> bf16 = round_trip(HalfKind::kBf16, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(fp16[i] - values[i]), std::abs(values[i]) * 0x1p-11F);
    EXPECT_LE(std::abs(bf16[i] - values[i]), std::abs(values[i]) * 0x1p-8F);
  }
}

TEST(Half, Fp16OverflowsToInfinityWhereBf16DoesNot) {
  EXPECT_EQ(round_trip(HalfKind::kFp16, {1e6F})[0], std::numeric_limits<float>::infinity());
  EXPECT_NEAR(round_trip(HalfKind::kBf16, {1e6F})[0], 1e6F, 4e3F);
}

TEST(Half, AddEqualsDecodingAndAdding) {
  for (const HalfKind kind : {HalfKind::kFp16, HalfKind::kBf16}) {
    const std::vector<float> values = {0.1F, -3.7F, 1e-6F, 900.0F, 0.0F, 2.5F, 7.0F, -8.1F, 9.3F, 0.77F, 1.1F};
    std::vector<std::uint16_t> payload(values.size());
    half_encode(kind, values, payload);
    const std::vector<float> decoded = round_trip(kind, values);
    std::vector<float> sum(values.size(), 0.3F), scaled(values.size(), 0.3F);
    half_add(kind, payload, sum);
    half_add(kind, payload, scaled, 0.25F);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(sum[i], 0.3F + decoded[i]);
      EXPECT_EQ(scaled[i], 0.3F + 0.25F * decoded[i]);
    }
  }
}

TEST(Half, ASecondRoundTripChangesNothing) {
  for (const HalfKind kind : {HalfKind::kFp16, HalfKind::kBf16}) {
    const std::vector<float> once = round_trip(kind, {0.1F, -3.7F, 1e-6F, 900.3F, 1e-20F});
    EXPECT_EQ(round_trip(kind, once), once);
  }
}

TEST(Half, IsNamed) {
  for (const HalfKind kind : {HalfKind::kFp16, HalfKind::kBf16}) EXPECT_EQ(parse_half_kind(half_name(kind)), kind);
  EXPECT_THROW(parse_half_kind("fp8"), ConfigError);
}

TEST(Half, RefusesAPayloadOfAnotherSize) {
  std::vector<float> three(3);
  std::vector<std::uint16_t> four(4);
  EXPECT_THROW(half_encode(HalfKind::kFp16, three, four), Error);
  EXPECT_THROW(half_decode(HalfKind::kBf16, four, three), Error);
  EXPECT_THROW(half_add(HalfKind::kBf16, four, three), Error);
}

}  // namespace
}  // namespace slipstream
