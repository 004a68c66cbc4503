// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include "oracle/simulated.h"
#include "oracle/sync_sgd_oracle.h"

namespace slipstream::oracle {
namespace {

constexpr std::int64_t kSteps = 40;

TEST(BspOracle, EveryStepOfEveryRankIsThatOfSynchronousSgd) {
  for (int workers : {1, 2, 3, 4, 7}) {
    for (const auto& [name, rule] : server_rules()) {
      const Course expected = sync_sgd({}, rule, workers, kSteps);
      for (int servers : {0, 1, 3}) {
        EXPECT_LT(distance(simulate({}, rule, workers, kSteps, "bsp", {}, servers), expected), kRounding)
            << name << ", P=" << workers << ", S=" << servers;
      }
    }
  }
}

TEST(Bsp, EqualsSyncSgdBitForBitWhereverTheServersAre) {
  for (const auto& [name, rule] : server_rules()) {
    for (int workers : {1, 2, 3, 4}) {
      const Course sync = simulate({}, rule, workers, kSteps, "ssgd");
      for (int servers : {0, 1, 2, 3}) {
        for (const char* overlap : {"overlap=true", "overlap=false"}) {
          EXPECT_EQ(simulate({}, rule, workers, kSteps, "bsp", {overlap}, servers), sync)
              << name << ", P=" << workers << ", S=" << servers << ", " << overlap;
        }
      }
    }
  }
}

}  // namespace
}  // namespace slipstream::oracle
