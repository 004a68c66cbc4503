// SPDX-License-Identifier: Apache-2.0
#include "topology/star.h"

#include <gtest/gtest.h>

#include "fabric/metered_fabric.h"
#include "sim/sim_world.h"

namespace slipstream {
namespace {

template <typename Body>
void on_ranks(int ranks, const Body& body) {
  SimWorldOptions options;
  options.ranks = ranks;
  SimWorld world(options);
  for (const RankOutcome& outcome : world.run(body)) ASSERT_TRUE(outcome.finished()) << outcome.error;
}

TEST(Star, TheServerHasTheSumInRankOrderAndTheOthersKeepTheirs) {
  for (const int ranks : {1, 2, 3, 8}) {
    float expected = 0;
    for (int r = 0; r < ranks; ++r)
      expected += 0.1F * static_cast<float>(r + 1);  // rounds differently in another order
    on_ranks(ranks, [&](SimPort& port) {
      const float mine = 0.1F * static_cast<float>(port.rank() + 1);
      std::vector<float> values(5, mine);
      Star().sum_at_server(port, values);
      EXPECT_EQ(values, std::vector<float>(5, port.rank() == 0 ? expected : mine)) << port.rank() << " of " << ranks;
    });
  }
}

TEST(Star, ABroadcastGivesEverybodyTheServersBytes) {
  for (const int ranks : {1, 2, 3, 8}) {
    on_ranks(ranks, [](SimPort& port) {
      MeteredFabric net(port);
      std::vector<std::byte> bytes(9, static_cast<std::byte>(port.rank() + 1));
      Star::broadcast(net, bytes);
      EXPECT_EQ(bytes, std::vector<std::byte>(9, std::byte{1}));
      EXPECT_EQ(net.take().bytes_sent, port.rank() == 0 ? 9 * (port.size() - 1) : 0);
    });
  }
}

}  // namespace
}  // namespace slipstream
