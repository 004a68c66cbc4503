// SPDX-License-Identifier: Apache-2.0
#include "fabric/wire.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <cmath>
#include <limits>
#include <vector>

namespace slipstream {
namespace {

std::vector<float> round_trip(Wire kind, const std::vector<float>& values) {
  std::vector<std::uint16_t> payload(values.size());
  std::vector<float> back(values.size());
  wire_encode(kind, values, payload);
  wire_decode(kind, payload, back);
  return back;
}

TEST(Wire, WritesThePublishedBitPatterns) {
  const std::vector<float> values = {1.0F, -2.0F, 0.5F, 0.0F, -0.0F};
  std::vector<std::uint16_t> payload(values.size());
  wire_encode(Wire::kFp16, values, payload);
  EXPECT_EQ(payload, (std::vector<std::uint16_t>{0x3C00, 0xC000, 0x3800, 0x0000, 0x8000}));
  wire_encode(Wire::kBf16, values, payload);
  EXPECT_EQ(payload, (std::vector<std::uint16_t>{0x3F80, 0xC000, 0x3F00, 0x0000, 0x8000}));
}

TEST(Wire, ErrsByHalfAUnitAtMost) {
  std::vector<float> values;
  for (int i = 1; i < 2000; ++i) values.push_back(std::sqrt(static_cast<float>(i)) * (i % 2 == 0 ? 1.0F : -1.0F));
  const std::vector<float> fp16 = round_trip(Wire::kFp16, values);
  const std::vector<float> bf16 = round_trip(Wire::kBf16, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(fp16[i] - values[i]), std::abs(values[i]) * 0x1p-11F);
    EXPECT_LE(std::abs(bf16[i] - values[i]), std::abs(values[i]) * 0x1p-8F);
  }
}

TEST(Wire, Fp16OverflowsToInfinityWhereBf16DoesNot) {
  EXPECT_EQ(round_trip(Wire::kFp16, {1e6F})[0], std::numeric_limits<float>::infinity());
  EXPECT_NEAR(round_trip(Wire::kBf16, {1e6F})[0], 1e6F, 4e3F);
}

TEST(Wire, AddEqualsDecodingAndAdding) {
  for (const Wire kind : {Wire::kFp16, Wire::kBf16}) {
    const std::vector<float> values = {0.1F, -3.7F, 1e-6F, 900.0F, 0.0F, 2.5F, 7.0F, -8.1F, 9.3F, 0.77F, 1.1F};
    std::vector<std::uint16_t> payload(values.size());
    wire_encode(kind, values, payload);
    const std::vector<float> decoded = round_trip(kind, values);
    std::vector<float> sum(values.size(), 0.3F);
    wire_add(kind, payload, sum);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(sum[i], 0.3F + decoded[i]);
  }
}

TEST(Wire, ASecondRoundTripChangesNothing) {
  for (const Wire kind : {Wire::kFp16, Wire::kBf16}) {
    const std::vector<float> once = round_trip(kind, {0.1F, -3.7F, 1e-6F, 900.3F, 1e-20F});
    EXPECT_EQ(round_trip(kind, once), once);
  }
}

TEST(Wire, IsNamed) {
  EXPECT_EQ(parse_wire("fp32"), Wire::kFp32);
  EXPECT_EQ(parse_wire("fp16"), Wire::kFp16);
  EXPECT_EQ(parse_wire("bf16"), Wire::kBf16);
  EXPECT_THROW(parse_wire("fp8"), ConfigError);
}

TEST(Wire, RefusesAPayloadOfAnotherSize) {
  std::vector<float> three(3);
  std::vector<std::uint16_t> four(4);
  EXPECT_THROW(wire_encode(Wire::kFp16, three, four), Error);
  EXPECT_THROW(wire_decode(Wire::kBf16, four, three), Error);
  EXPECT_THROW(wire_add(Wire::kBf16, four, three), Error);
}

}  // namespace
}  // namespace slipstream
