// SPDX-License-Identifier: Apache-2.0
#include "topology/tree.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/rng.h"
#include "fabric/metered_fabric.h"
#include "sim/sim_world.h"

namespace slipstream {
namespace {

std::vector<RankOutcome> run(int ranks, const std::function<void(SimPort&)>& body, std::uint64_t seed = 1,
                             const std::vector<Fault>& faults = {}) {
  SimWorldOptions options;
  options.ranks = ranks;
  options.seed = seed;
  options.faults = faults;
  SimWorld world(options);
  return world.run(body);
}

std::vector<float> values_of(int rank, std::size_t count) {
  Rng random(7, static_cast<std::uint64_t>(rank));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

// The additions in the order of the tree, by the pseudo-code: in round `step` rank r adds what r + step has.
std::vector<float> reference(int ranks, std::size_t count) {
  std::vector<std::vector<float>> have;
  for (int r = 0; r < ranks; ++r) have.push_back(values_of(r, count));
  for (int step = 1; step < ranks; step *= 2) {
    for (int r = 0; r + step < ranks; r += 2 * step) {
      for (std::size_t j = 0; j < count; ++j) {
        have[static_cast<std::size_t>(r)][j] += have[static_cast<std::size_t>(r + step)][j];
      }
    }
  }
  return have[0];
}

TEST(Tree, EveryRankButTheRootIsTheChildOfItsParent) {
  for (int size = 1; size <= 70; ++size) {
    for (int r = 0; r < size; ++r) {
      const Tree tree(r, size);
      ASSERT_EQ(tree.is_root(), r == 0);
      for (const int child : tree.children()) ASSERT_EQ(Tree(child, size).parent(), r);
      if (r == 0) continue;
      const std::vector<int> siblings = Tree(tree.parent(), size).children();
      ASSERT_EQ(std::count(siblings.begin(), siblings.end(), r), 1) << r << " of " << size;
    }
  }
}

TEST(Tree, NobodySendsMoreThanTheLogarithmAndTheRootSendsThatMany) {
  for (int size = 2; size <= 1024; ++size) {
    const auto rounds = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size - 1)));
    std::size_t all = 0;
    for (int r = 0; r < size; ++r) {
      ASSERT_LE(Tree(r, size).messages(), rounds) << r << " of " << size;
      all += Tree(r, size).messages();
    }
    EXPECT_EQ(Tree(0, size).messages(), rounds);
    EXPECT_EQ(all, static_cast<std::size_t>(2 * (size - 1))) << "every edge carries one message each way";
  }
}

TEST(Tree, RefusesARankThatIsNotThere) {
  EXPECT_THROW(Tree(2, 2), Error);
  EXPECT_THROW(Tree(-1, 2), Error);
}

TEST(TreeSum, AddsInTheOrderOfTheTreeBitForBitOnAllRanks) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const std::size_t count : {0U, 1U, 5U, 8191U, 8192U, 8193U, 30000U}) {
      const std::vector<float> expected = reference(ranks, count);
      for (const std::uint64_t seed : {1, 2, 3}) {
        const auto body = [&](SimPort& port) {
          std::vector<float> values = values_of(port.rank(), count);
          TreeSum().sum(port, values);
          EXPECT_TRUE(values == expected) << "rank " << port.rank() << " of " << ranks << ", " << count << " floats";
        };
        const auto outcomes = run(ranks, body, seed);
        for (const RankOutcome& outcome : outcomes) ASSERT_TRUE(outcome.finished()) << outcome.error;
      }
    }
  }
}

TEST(TreeSum, ManySumsInARowOfAnySizeDoNotMix) {
  const auto outcomes = run(7, [](SimPort& port) {
    TreeSum tree;
    for (const std::size_t count : {20000U, 3U, 9000U, 1U, 20000U}) {
      std::vector<float> values(count, static_cast<float>(port.rank() + 1));
      tree.sum(port, values);
      EXPECT_EQ(values, std::vector<float>(count, 28.0F));
    }
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.finished()) << outcome.error;
}

TEST(TreeSum, SendsTheBytesItsFormulaSays) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const auto outcomes = run(ranks, [&](SimPort& port) {
      MeteredFabric net(port);
      std::vector<float> values(12345);
      TreeSum().sum(net, values);
      EXPECT_EQ(net.take().bytes_sent, TreeSum::bytes_sent(values.size(), port.rank(), ranks)) << port.rank();
    });
    for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.finished()) << outcome.error;
  }
}

double seconds_of_a_sum(int ranks) {
  constexpr std::size_t kCount = 80 * 8192;
  SimWorldOptions options;
  options.ranks = ranks;
  options.link = {0.0, kCount * sizeof(float)};  // one second each way
  SimWorld world(options);
  world.run([](SimPort& port) {
    std::vector<float> values(kCount);
    TreeSum().sum(port, values);
  });
  return world.now();
}

TEST(TreeSum, OfTwoRanksCrossesAndTakesOneWayOnly) { EXPECT_NEAR(seconds_of_a_sum(2), 1.0, 1e-9); }

// Rank 0 has two children: two seconds in and two out, four without pieces.
TEST(TreeSum, PiecesUseBothDirectionsAtOnce) {
  EXPECT_GT(seconds_of_a_sum(3), 2.0);
  EXPECT_LT(seconds_of_a_sum(3), 3.5);
}

TEST(TreeSum, ALostRankIsNamedByAllOthers) {
  for (int lost = 0; lost < 6; ++lost) {
    const auto body = [](SimPort& port) {
      TreeSum tree;
      std::vector<float> values(20000, 1.0F);
      for (std::int64_t t = 0; t < 3; ++t) {
        port.mark_step(t);
        tree.sum(port, values);
      }
    };
    const auto outcomes = run(6, body, 1, {Fault::crash(lost, FaultPoint::at_step(1))});
    for (int r = 0; r < 6; ++r) {
      const RankOutcome& outcome = outcomes[static_cast<std::size_t>(r)];
      if (r == lost) continue;
      EXPECT_EQ(outcome.kind, RankOutcome::Kind::kFailed) << r;
      EXPECT_NE(outcome.error.find("rank " + std::to_string(lost)), std::string::npos) << r << ": " << outcome.error;
    }
  }
}

TEST(TreeBroadcast, EverybodyHasTheRootsBytes) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const std::size_t count : {0U, 1U, 1000U}) {
      const auto outcomes = run(ranks, [&](SimPort& port) {
        std::vector<std::byte> bytes(count, static_cast<std::byte>(port.rank() + 1));
        tree_broadcast(port, bytes);
        EXPECT_EQ(bytes, std::vector<std::byte>(count, std::byte{1})) << "rank " << port.rank() << " of " << ranks;
      });
      for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.finished()) << outcome.error;
    }
  }
}

}  // namespace
}  // namespace slipstream
