// SPDX-License-Identifier: Apache-2.0
#include "topology/gather_text.h"

#include <gtest/gtest.h>

#include "sim/sim_world.h"

namespace slipstream {
namespace {

// Runs gather_text with text(rank) on every rank; returns what each of them got.
template <typename Text>
std::vector<std::vector<std::string>> gather_everywhere(int ranks, const Text& text) {
  std::vector<std::vector<std::string>> got(static_cast<std::size_t>(ranks));
  SimWorldOptions options;
  options.ranks = ranks;
  SimWorld world(options);
  const auto outcomes = world.run(
      [&](SimPort& port) { got[static_cast<std::size_t>(port.rank())] = gather_text(port, text(port.rank())); });
  for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.finished()) << outcome.error;
  return got;
}

TEST(GatherText, EveryRankGetsAllTextsInRankOrder) {
  for (int ranks : {1, 2, 3, 7}) {
    const auto text = [](int rank) {
      return std::string(static_cast<std::size_t>(3 * rank), 'a' + static_cast<char>(rank));
    };
    std::vector<std::string> expected;
    for (int r = 0; r < ranks; ++r) expected.push_back(text(r));
    for (const auto& got : gather_everywhere(ranks, text)) EXPECT_EQ(got, expected) << ranks << " ranks";
  }
}

TEST(GatherText, KeepsZeroBytesAndTrailingBlanks) {
  const std::string odd = std::string("a\0b\0\0", 5) + "  \n";
  for (const auto& got :
       gather_everywhere(3, [&](int rank) { return rank == 1 ? odd : std::string("longer than the odd one"); })) {
    EXPECT_EQ(got[1], odd);
    EXPECT_EQ(got[2], "longer than the odd one");
  }
}

TEST(GatherText, EmptyTextsStayEmpty) {
  for (const auto& got : gather_everywhere(3, [](int) { return std::string(); })) {
    EXPECT_EQ(got, std::vector<std::string>(3));
  }
}

}  // namespace
}  // namespace slipstream
