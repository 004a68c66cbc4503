// SPDX-License-Identifier: Apache-2.0
#include "wire/roster.h"

#include "base/rng.h"
#include "kit/fuzz.h"
#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;

Roster roster_of(int ranks) {
  Roster roster{.epoch = 3, .key = key_of("any secret will do here"), .ranks = {}};
  for (int r = 0; r < ranks; ++r) {
    roster.ranks.push_back({.seat = (7 * r) % 1001, .address = {"10.88.0." + std::to_string(r % 200), 1 + r % 65535}});
  }
  roster.workers = (ranks + 1) / 2;
  return roster;
}

bool possible(const Address& address) { return !address.host.empty() && address.port > 0 && address.port < 65536; }

TEST(Roster, TextsAreReadBackEqual) {
  const JoinText join{.seat = 3,
                      .seats = 7,
                      .serves = true,
                      .epoch = 4,
                      .rank = 2,
                      .holds = true,
                      .address = {"node-3.example", 65535}};
  EXPECT_EQ(JoinText::from_text(join.to_text()), join);
  for (const int ranks : {1, 2, 1000}) {
    const Roster roster = roster_of(ranks), read = Roster::from_text(roster.to_text());
    EXPECT_EQ(read.epoch, roster.epoch);
    EXPECT_EQ(read.key, roster.key);
    EXPECT_EQ(read.workers, roster.workers);
    EXPECT_EQ(read.ranks, roster.ranks);
  }
}

TEST(Roster, ARequestToJoinThatMakesNoSenseIsRefused) {
  for (const std::string text :
       {"", "x", "0", "0 1", "0 1 0 0 0 0 host", "-1 2 0 0 0 0 host 5", "0 0 0 0 0 0 host 5", "0 1 2 0 0 0 host 5",
        "0 1 0 -1 0 0 host 5", "0 1 0 99999999999 0 0 host 5", "0 1 0 0 -1 0 host 5", "0 1 0 0 0 0 host 0",
        "0 1 0 0 0 0 host 65536", "0 1 0 0 0 0 host -5", "0 1 0 0 0 0 host 99999999999999", "0 1 0 0 0 0 host 5 more",
        "99999999999 100000000000 0 0 0 0 host 5", "70000 70001 0 0 0 0 host 5"}) {
    expect_error<FabricError>([&] { JoinText::from_text(text); }, {"a request to join is refused"});
  }
  EXPECT_THROW(JoinText::from_text("0 1 0 0 0 0 " + std::string(300, 'h') + " 5"), FabricError);
}

TEST(Roster, ARosterThatMakesNoSenseIsRefused) {
  const std::string key(64, 'a');
  for (const std::string& text :
       {std::string(), std::string("1"), "1 1 1 " + key, "1 1 1 " + key + "\n0 host", "1 1 1 " + key + "\n0 host 0",
        "1 2 1 " + key + "\n0 host 5", "1 1 1 " + key.substr(1) + "\n0 host 5", "1 1 1 " + key + "a\n0 host 5",
        "1 1 1 " + std::string(64, 'g') + "\n0 host 5", "0 1 1 " + key + "\n0 host 5", "-1 1 1 " + key + "\n0 host 5",
        "1 0 0 " + key, "1 1 2 " + key + "\n0 host 5", "1 1 0 " + key + "\n0 host 5", "1 1 1 " + key + "\n-1 host 5",
        "1 -1 1 " + key + "\n0 host 5", "1 1000000 1 " + key + "\n0 host 5",
        "1 18446744073709551615 1 " + key + "\n0 host 5", "1 1 1 " + key + "\n0 host 5\n1 host 6"}) {
    expect_error<FabricError>([&] { Roster::from_text(text); }, {"cannot be read", "same program"});
  }
}

TEST(Roster, DamagedTextsAreRefusedOrStillPossible) {
  const std::string join = JoinText{.seat = 3, .seats = 7, .address = {"10.0.0.1", 1234}}.to_text(),
                    roster = roster_of(5).to_text();
  std::uint64_t refused = 0;
  const std::uint64_t inputs = test::fuzz_seeds(20'000);
  for (std::uint64_t seed = 0; seed < inputs; ++seed) {
    Rng rng(seed);
    std::string text = seed % 2 == 0 ? join : roster;
    for (std::uint64_t changes = 1 + rng.below(4); changes > 0 && !text.empty(); --changes) {
      const std::size_t at = rng.below(text.size());
      switch (rng.below(3)) {
        case 0:
          text[at] = static_cast<char>(rng.next());
          break;
        case 1:
          text.erase(at, 1 + rng.below(10));
          break;
        default:
          text.insert(at, 1, "0123456789abcdef \n-"[rng.below(19)]);
      }
    }
    try {
      if (seed % 2 == 0) {
        const JoinText read = JoinText::from_text(text);
        ASSERT_TRUE(read.seat >= 0 && read.seats > 0 && read.rank >= 0 && possible(read.address)) << text;
      } else {
        const Roster read = Roster::from_text(text);
        ASSERT_GT(read.epoch, 0U) << text;
        ASSERT_FALSE(read.ranks.empty());
        for (const Roster::Rank& rank : read.ranks) ASSERT_TRUE(rank.seat >= 0 && possible(rank.address)) << text;
      }
    } catch (const FabricError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, inputs / 10);
}

TEST(Roster, AFailureIsOfTheUserWhereItsTextSaysSoAndElseOfTheFabric) {
  expect_error<ConfigError>([] { throw_failure_text(kUsersFault + std::string("mend it"), true); }, {"mend it"});
  expect_error<AnnouncedError>([] { throw_failure_text("why", true); }, {"why"});
  expect_error<FabricError>([] { throw_failure_text("why", false); }, {"why"});
  expect_error<FabricError>([] { throw_failure_text("", false); }, {});
}

TEST(Roster, RanksAreNamedForPeople) {
  EXPECT_EQ(rank_name(1, 2), "rank 1");
  EXPECT_EQ(rank_name(2, 2), "server 0 (rank 2)");
  EXPECT_EQ(rank_name(-1, 2), "the supervisor");
}

}  // namespace
}  // namespace slipstream
