// SPDX-License-Identifier: Apache-2.0
#include "topology/link_probe.h"

#include <gtest/gtest.h>

#include "sim/sim_world.h"
#include "topology/agree.h"

namespace slipstream {
namespace {

std::vector<LinkCosts> probe(const SimWorldOptions& options) {
  std::vector<LinkCosts> costs(static_cast<std::size_t>(options.ranks));
  SimWorld world(options);
  for (const RankOutcome& outcome :
       world.run([&](SimPort& port) { costs[static_cast<std::size_t>(port.rank())] = probe_link(port); })) {
    EXPECT_TRUE(outcome.finished()) << outcome.error;
  }
  return costs;
}

TEST(LinkProbe, FindsLatencyAndRateOfTheLink) {
  for (const double bytes_per_s : {2e4, 12.5e6, 1e9}) {
    for (const int ranks : {2, 3}) {
      SimWorldOptions options;
      options.ranks = ranks;
      options.link = {0.0003, bytes_per_s};
      for (const LinkCosts& costs : probe(options)) {
        EXPECT_NEAR(costs.gather.s_per_byte * bytes_per_s, ranks - 1.0, 0.01 * ranks);
        EXPECT_NEAR(costs.gather.latency_s, 0.0003, 1e-6);
        EXPECT_NEAR(costs.sum.s_per_byte * bytes_per_s, 2 * (ranks - 1.0) / ranks, 0.01);
        EXPECT_NEAR(costs.sum.latency_s, ranks == 2 ? 0.0003 : 0.0006, 1e-6) << "one delay of two, else two";
      }
    }
  }
}

TEST(LinkProbe, AllRanksHoldTheSameFiguresEvenWhereTheirLinksDiffer) {
  SimWorldOptions options;
  options.ranks = 5;
  options.link = {0.0003, 1e6};
  options.pair_links[{1, 2}] = {0.01, 1e5};
  const auto costs = probe(options);
  for (const LinkCosts& other : costs) {
    EXPECT_EQ(other.gather.s_per_byte, costs[0].gather.s_per_byte);
    EXPECT_EQ(other.gather.latency_s, costs[0].gather.latency_s);
    EXPECT_EQ(other.sum.s_per_byte, costs[0].sum.s_per_byte);
    EXPECT_EQ(other.sum.latency_s, costs[0].sum.latency_s);
  }
  EXPECT_GT(costs[0].gather.s_per_byte, 1.5e-5 / 2) << "the slow pair is felt";
}

TEST(LinkProbe, AWorkerAloneHasNoWire) {
  SimWorldOptions options;
  options.ranks = 1;
  EXPECT_EQ(probe(options)[0].gather.seconds(1e9), 0.0);
}

TEST(Agree, MeansAreEverybodys) {
  SimWorldOptions options;
  options.ranks = 3;
  SimWorld world(options);
  const auto outcomes = world.run([](SimPort& port) {
    double numbers[] = {1.0 * port.rank(), 6.0};
    agree_on_means(port, numbers);
    EXPECT_DOUBLE_EQ(numbers[0], 1.0);
    EXPECT_DOUBLE_EQ(numbers[1], 6.0);
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.finished()) << outcome.error;
}

}  // namespace
}  // namespace slipstream
