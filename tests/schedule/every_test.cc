// SPDX-License-Identifier: Apache-2.0
#include "schedule/every.h"

#include <gtest/gtest.h>

#include <vector>

namespace slipstream {
namespace {

TEST(Every, SendsAtTheEndOfEachPeriod) {
  std::vector<std::int64_t> sent;
  for (std::int64_t t = 0; t < 12; ++t) {
    if (Every{4}.sends(t)) sent.push_back(t);
  }
  EXPECT_EQ(sent, (std::vector<std::int64_t>{3, 7, 11}));
}

TEST(Every, PeriodOneSendsAlways) {
  for (std::int64_t t = 0; t < 5; ++t) EXPECT_TRUE(Every{1}.sends(t));
}

}  // namespace
}  // namespace slipstream
