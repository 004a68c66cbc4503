// SPDX-License-Identifier: Apache-2.0
#include "wire/hub.h"

#include <algorithm>

#include "fabric/loopback.h"
#include "task/files.h"
#include "wire/raw_peer.h"

namespace slipstream {
namespace {

using test::Bytes;
using test::expect_error;
using test::hub_for;
using test::RawMember;
using test::RawPeer;
using test::Stranger;
using Kind = FrameHead::Kind;

const Key kKey{};  // hub_for() leaves it at that

Introduction member(int rank) { return {.epoch = 0, .from = rank, .to = Link::kHub}; }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Hub, TellsEverybodyWhereAllListenOnceTheLastHasJoined) {
  const Hub hub(hub_for(3));
  std::vector<std::unique_ptr<RawMember>> members;
  for (const int rank : {2, 0, 1}) members.push_back(std::make_unique<RawMember>(hub.port(), kKey, rank, 3));
  for (auto& one : members) {
    const Roster roster = one->roster();
    ASSERT_EQ(roster.ranks.size(), 3U);
    EXPECT_EQ(roster.workers, 3);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(roster.ranks[static_cast<std::size_t>(r)], (Roster::Rank{r, {"127.0.0.1", 1}}));
    }
    EXPECT_EQ(one->roster().key, members[0]->roster().key);
    EXPECT_NE(one->roster().key, kKey) << "it is fresh for every job";
    EXPECT_GT(one->roster().epoch, 0U);
  }
}

TEST(Hub, ShowsLifeToThoseWhoHaveJoined) {
  const Hub hub(hub_for(2));
  RawMember one(hub.port(), kKey, 0, 2);
  std::string text;
  EXPECT_TRUE(one.hub.hear(Kind::kBeat, text));
}

TEST(Hub, AnAnnouncementReachesThoseWhoAreThereAndThoseWhoComeLater) {
  Hub hub(hub_for(3));
  RawMember early(hub.port(), kKey, 0, 3);
  hub.announce("worker 1 was taken by wolves");
  hub.announce("a later announcement does not count");
  EXPECT_EQ(early.hub.failure(), "worker 1 was taken by wolves");
  RawPeer late(hub.port(), kKey, member(2));
  EXPECT_EQ(late.failure(), "worker 1 was taken by wolves");
}

TEST(Hub, AFailureOfOneIsToldToAllOthers) {
  const Hub hub(hub_for(3));
  RawMember a(hub.port(), kKey, 0, 3), b(hub.port(), kKey, 1, 3);
  a.hub.say(Kind::kFailure, "rank 0 has no disk");
  EXPECT_EQ(b.hub.failure(), "rank 0 has no disk");
}

TEST(Hub, AnotherNumberOfProcessesIsTheUsersToMendOnAllRanks) {
  const Hub hub(hub_for(3));
  RawMember right(hub.port(), kKey, 0, 3), wrong(hub.port(), kKey, 1, 4);
  for (RawMember* one : {&right, &wrong}) {
    const std::string text = one->hub.failure();
    EXPECT_EQ(text[0], kUsersFault);
    EXPECT_TRUE(has(text, "rank 1 was told of 4 processes, the rendezvous of 3")) << text;
  }
}

TEST(Hub, ARankBeyondTheJobIsRefused) {
  const Hub hub(hub_for(2));
  RawMember beyond(hub.port(), kKey, 5, 6);
  EXPECT_TRUE(has(beyond.hub.failure(), "rank 5 was told of 6 processes, the rendezvous of 2"));
}

TEST(Hub, ARankThatJoinsTwiceIsTheUsersToMend) {
  const Hub hub(hub_for(2));
  RawMember first(hub.port(), kKey, 1, 2), second(hub.port(), kKey, 1, 2);
  for (RawMember* one : {&first, &second}) {
    EXPECT_TRUE(has(one->hub.failure(), "two processes claim rank 1 of this job"));
  }
  const Hub another(hub_for(2));
  RawMember twice(another.port(), kKey, 1, 2);
  twice.hub.say(Kind::kJoin,
                JoinText{.seat = 0, .seats = 2, .address = {"127.0.0.1", 1}}.to_text());  // one process as two ranks
  EXPECT_TRUE(has(twice.hub.failure(), "one process claims rank 1 and rank 0"));
}

TEST(Hub, AFrameItDoesNotTakeIsAnsweredWithTheReasonOnAllRanks) {
  struct Case {
    std::function<void(RawPeer&)> says;
    std::string reason;
  };
  const Case cases[] = {
      {[](RawPeer& p) { p.say(Kind::kJoin, "nonsense"); }, "a request to join is refused"},
      {[](RawPeer& p) { p.say(Kind::kRoster, "nonsense"); }, "takes none of its kind"},
      {[](RawPeer& p) { p.say({.kind = Kind::kCredit, .number = 5}); }, "takes none of its kind"},
      {[](RawPeer& p) { p.say({.kind = Kind::kData, .total = 10}, Bytes(10)); }, "takes none of its kind"},
      {[](RawPeer& p) { p.say_raw(Bytes(48)); }, "it does not begin like one"},
  };
  for (const Case& one : cases) {
    const Hub hub(hub_for(3));
    RawMember other(hub.port(), kKey, 0, 3);
    RawPeer liar(hub.port(), kKey, member(1));
    one.says(liar);
    for (const std::string& text : {liar.failure(), other.hub.failure()}) {
      EXPECT_TRUE(has(text, "the rendezvous refused the process at 127.0.0.1:")) << text;
      EXPECT_TRUE(has(text, one.reason)) << text;
    }
  }
}

TEST(Hub, ThoseWhoDoNotJoinInTimeAreNamed) {
  HubOptions options = hub_for(4);
  options.workers = 3;
  options.join_timeout_seconds = 0.1;
  const Hub hub(options);
  RawMember one(hub.port(), kKey, 1, 4);
  const std::string text = one.hub.failure();
  EXPECT_TRUE(has(text, "rank 0, rank 2, server 0 (rank 3) of 4 did not join within")) << text;
}

TEST(Hub, OneThatLeavesBeforeAllHaveJoinedIsNamed) {
  const Hub hub(hub_for(3));
  RawMember stays(hub.port(), kKey, 0, 3);
  { RawMember leaves(hub.port(), kKey, 1, 3); }
  const std::string text = stays.hub.failure();
  EXPECT_TRUE(has(text, "rank 1 is lost: it left before all had joined")) << text;
}

TEST(Hub, OneThatHasJoinedAndIsSilentIsNamed) {
  HubOptions options = hub_for(2);
  options.timeout_seconds = 2;
  const Hub hub(options);
  RawMember silent(hub.port(), kKey, 1, 2), alive(hub.port(), kKey, 0, 2);
  std::string text;
  for (Kind kind{}; kind != Kind::kFailure && alive.hub.hear_any(kind, text);) {
    alive.hub.say(Kind::kBeat);  // answers every sign of life with one of its own
  }
  EXPECT_TRUE(has(text, "rank 1 is lost: no sign of life")) << text;
}

HubOptions elastic_hub(int ranks, int most) {
  HubOptions options = hub_for(ranks);
  options.elastic = {1, most};
  return options;
}

// The next frame that is no sign of life; kBeat where the connection ends before.
Kind next_word(RawMember& member, std::string& text) {
  for (Kind kind{}; member.hub.hear_any(kind, text);) {
    if (kind != Kind::kBeat) return kind;
  }
  return Kind::kBeat;
}

TEST(Hub, OneThatWaitsToJoinAnElasticJobCannotEndIt) {
  const Hub hub(elastic_hub(1, 4));
  RawMember at_work(hub.port(), kKey, 0, 1);
  EXPECT_EQ(at_work.roster().ranks.size(), 1U);
  std::string text;
  {
    RawMember waits(hub.port(), kKey, 1, 1);
    EXPECT_EQ(next_word(at_work, text), Kind::kKnock);
    waits.hub.say(Kind::kFailure, std::string(1, kUsersFault) + "there is no network interface 'eth7' here");
    waits.hub.say(Kind::kFailure, "rank 1 has no disk");
  }
  RawMember another(hub.port(), kKey, 2, 1);
  EXPECT_EQ(next_word(at_work, text), Kind::kKnock) << text;
}

TEST(Hub, TheEndOfOneProcessEndsTheGroupItWasInAndNoOther) {
  Hub hub(elastic_hub(2, 4));
  RawMember a(hub.port(), kKey, 0, 2), b(hub.port(), kKey, 1, 2);
  EXPECT_EQ(a.roster().ranks.size(), 2U);
  EXPECT_EQ(b.roster().ranks.size(), 2U);
  EXPECT_TRUE(hub.seats_that_hold().empty());
  b.hub.say(Kind::kHolds, "");
  while (hub.seats_that_hold().empty()) std::this_thread::yield();
  EXPECT_EQ(hub.seats_that_hold(), std::vector<int>{1});
  hub.process_is_gone(3, "worker 3 was killed");  // it never was in the group
  hub.process_is_gone(1, "worker 1 was killed");
  std::string text;
  EXPECT_EQ(next_word(a, text), Kind::kFailure);
  EXPECT_EQ(text, kGroupOver + std::string("worker 1 was killed"));
}

TEST(Hub, AnotherSecretIsRefusedOnBothSides) {
  for (const bool encrypted : {false, true}) {
    HubOptions options = hub_for(2);
    options.encrypted = encrypted;
    const Hub hub(options);
    const Key other = key_of("the secret of another job");
    testing::internal::CaptureStderr();
    expect_error<FabricError>([&] { RawPeer(hub.port(), other, member(1), encrypted ? &other : nullptr); }, {"secret"});
    // The hub has said so before it shows life to the next one.
    RawMember ours(hub.port(), kKey, 0, 2, encrypted);
    std::string text;
    ours.hub.hear(Kind::kBeat, text);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(has(said, "slipstream: the rendezvous refused 127.0.0.1:")) << said;
    EXPECT_TRUE(has(said, "secret")) << said;
  }
}

TEST(Hub, MayBeDestroyedWhileOthersAreInTheMiddleOfTheirGreeting) {
  for (const bool encrypted : {false, true}) {
    std::vector<Stranger> strangers;
    HubOptions options = hub_for(2);
    options.encrypted = encrypted;
    {
      const Hub hub(options);
      for (int i = 0; i < 20; ++i) {
        strangers.emplace_back(hub.port());
        strangers.back().say(std::as_bytes(std::span("slps\1", 5)));
      }
      RawMember one(hub.port(), kKey, 0, 2, encrypted);
      std::string text;
      one.hub.hear(Kind::kBeat, text);
    }
    for (Stranger& one : strangers) one.hear_to_the_end();
  }
}

TEST(Hub, ManyStrangersDoNotKeepTheLastRankOut) {
  const Hub hub(hub_for(2));
  RawMember first(hub.port(), kKey, 0, 2);
  std::vector<Stranger> strangers;
  for (int i = 0; i < 200; ++i) strangers.emplace_back(hub.port());
  RawMember last(hub.port(), kKey, 1, 2);
  EXPECT_EQ(first.roster().ranks.size(), 2U);
  EXPECT_EQ(last.roster().ranks.size(), 2U);
}

}  // namespace
}  // namespace slipstream
