// SPDX-License-Identifier: Apache-2.0
#include "topology/compressed_sum.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "fabric/metered_fabric.h"
#include "sim/sim_world.h"

namespace slipstream {
namespace {

constexpr std::size_t kCount = 4000;

struct Outcome {
  std::vector<float> handed_over, owed, up, down;
  double start_bytes = 0, finish_bytes = 0;
};

// Every rank hands over noise of its own; entry 1000 is large on all together though on no rank alone.
std::vector<Outcome> exchange(const CompressedSumOptions& options, int ranks) {
  std::vector<Outcome> all(static_cast<std::size_t>(ranks));
  SimWorldOptions options_of_world;
  options_of_world.ranks = ranks;
  SimWorld world(options_of_world);
  world.run([&](SimPort& port) {
    Outcome& mine = all[static_cast<std::size_t>(port.rank())];
    Rng rng(static_cast<std::uint64_t>(port.rank()) + 1);
    for (std::size_t i = 0; i < kCount; ++i) mine.handed_over.push_back(static_cast<float>(0.1 * rng.normal()));
    mine.handed_over[1000] = 0.4F;
    mine.handed_over[7 + static_cast<std::size_t>(port.rank())] = 5.0F;
    mine.owed = mine.handed_over;
    mine.up.assign(kCount, 1.0F);
    mine.down.assign(kCount, 2.0F);
    MeteredFabric net(port);
    const auto sum = options.make(kCount);
    sum->start(net, mine.owed, 5);
    mine.start_bytes = net.take().bytes_sent;
    sum->finish(mine.owed, mine.up, mine.down);
    EXPECT_TRUE(sum->done());
    mine.finish_bytes = net.take().bytes_sent;
  });
  return all;
}

class Codec : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(CompressedSum, Codec, testing::Values("topk", "half", "sketch"));

TEST_P(Codec, TheMeanIsTheSameEverywhereAndWithWhatIsOwedItIsAllThatWasHandedOver) {
  for (int ranks : {1, 2, 3, 7}) {
    const auto all = exchange({GetParam(), 0.02}, ranks);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      double handed_over = 0, owed = 0;
      for (const Outcome& rank : all) {
        EXPECT_EQ(rank.up[i], all[0].up[i]);
        handed_over += rank.handed_over[i] / ranks;
        owed += rank.owed[i] / ranks;
      }
      const double mean = all[0].up[i] - 1.0;
      if (mean != 0) ++changed;
      EXPECT_NEAR(2.0 - all[0].down[i], mean, 1e-6);
      const double of_the_sum = GetParam() == "half" ? std::abs(mean) * 0x1.0p-11 : 0;
      EXPECT_NEAR(mean + owed, handed_over, 1e-6 + of_the_sum) << "element " << i << ", P=" << ranks;
    }
    EXPECT_NEAR(all[0].up[7], 1 + 5.0 / ranks, 0.2) << "a large entry of one rank arrives";
    const std::size_t least = GetParam() == "half" ? kCount * 9 / 10 : 80;
    const std::size_t most = GetParam() == "half" ? kCount : GetParam() == "sketch" ? 80 : 80 * all.size();
    EXPECT_GE(changed, least);
    EXPECT_LE(changed, most);
  }
}

TEST_P(Codec, SendsTheBytesItSays) {
  for (int ranks : {1, 2, 3, 7}) {
    const CompressedSumOptions options{GetParam(), 0.02};
    for (const Outcome& rank : exchange(options, ranks)) {
      EXPECT_DOUBLE_EQ(rank.start_bytes, options.start_bytes(kCount, ranks));
      EXPECT_DOUBLE_EQ(rank.finish_bytes, options.finish_bytes(kCount, ranks));
    }
  }
}

// Entry 1000 is 0.4 on each of 16 ranks, among noise of 0.1 and an entry of 5: sixteen times that stands out of the sum.
TEST(CompressedSum, TheSketchFindsWhatIsLargeInTheSum) {
  const auto all = exchange({"sketch", 0.02}, 16);
  EXPECT_NEAR(all[0].up[1000], 1.4, 1e-5);
}

}  // namespace
}  // namespace slipstream
