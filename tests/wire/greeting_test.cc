// SPDX-License-Identifier: Apache-2.0
#include "wire/greeting.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"

namespace slipstream {
namespace {

using Bytes = std::vector<std::byte>;

const Key kKey = key_of("the secret of this job");
const Key kOtherKey = key_of("the secret of another job");
const Introduction kConnector{.epoch = 4, .from = 2, .to = 7, .stream = 1, .streams = 3};
const Introduction kAcceptor{.epoch = 4, .from = 7, .to = -1, .stream = 0, .streams = 0};

// One side with what became of it, and all it has said.
struct Party {
  Party(Side side, const Key& key, const Introduction& mine) : greeting(side, key, mine) {}

  // Feeds as much as is wanted; returns what is left.
  std::span<const std::byte> hear(std::span<const std::byte> bytes, std::size_t at_once = 1000) {
    while (!bytes.empty() && error.empty()) {
      const std::span<std::byte> into = greeting.wants();
      const std::size_t size = std::min({into.size(), bytes.size(), at_once});
      if (size == 0) break;
      std::copy_n(bytes.begin(), size, into.begin());
      bytes = bytes.subspan(size);
      try {
        greeting.take(size);
      } catch (const FabricError& failure) {
        error = failure.what();
        EXPECT_TRUE(greeting.wants().empty());
        EXPECT_FALSE(greeting.done());
      }
    }
    return bytes;
  }

  Bytes speak(std::size_t at_once = 1000) {
    const std::span<const std::byte> says = greeting.says();
    const Bytes bytes(says.begin(), says.begin() + static_cast<std::ptrdiff_t>(std::min(at_once, says.size())));
    greeting.said(bytes.size());
    spoken.insert(spoken.end(), bytes.begin(), bytes.end());
    return bytes;
  }

  Greeting greeting;
  std::string error;
  Bytes spoken;
};

struct Conversation {
  explicit Conversation(const Key& connector_key = kKey, const Key& acceptor_key = kKey,
                        const Introduction& connects = kConnector, const Introduction& accepts = kAcceptor)
      : connector(Side::kConnects, connector_key, connects), acceptor(Side::kAccepts, acceptor_key, accepts) {}

  // Carries bytes until nothing moves. `change` may alter what passes; it gets the sender and the first byte's place.
  template <typename Change>
  void run(std::size_t at_once, Change change) {
    for (bool moved = true; moved;) {
      moved = false;
      for (Party* from : {&connector, &acceptor}) {
        Party& to = from == &connector ? acceptor : connector;
        const std::size_t place = from->spoken.size();
        Bytes bytes = from->speak(at_once);
        if (bytes.empty()) continue;
        moved = true;
        change(from == &connector ? Side::kConnects : Side::kAccepts, place, bytes);
        to.hear(bytes, at_once);
      }
    }
  }
  void run(std::size_t at_once = 1000) {
    run(at_once, [](Side, std::size_t, Bytes&) {});
  }

  bool both_done() const { return connector.greeting.done() && acceptor.greeting.done(); }

  Party connector, acceptor;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Greeting, EachSideLearnsWhoTheOtherIsHoweverTheBytesAreCut) {
  for (const std::size_t at_once : {1, 2, 3, 7, 31, 55, 56, 57, 1000}) {
    Conversation talk;
    EXPECT_FALSE(talk.connector.greeting.done());
    talk.run(at_once);
    ASSERT_TRUE(talk.both_done()) << at_once << talk.connector.error << talk.acceptor.error;
    EXPECT_EQ(talk.acceptor.greeting.theirs(), kConnector);
    EXPECT_EQ(talk.connector.greeting.theirs().epoch, 4U);
    EXPECT_EQ(talk.connector.greeting.theirs().from, 7);
    EXPECT_EQ(talk.connector.spoken.size(), 56U + 32U);
    EXPECT_EQ(talk.acceptor.spoken.size(), 48U + 36U);
  }
}

TEST(Greeting, ExtremesOfEveryFieldArrive) {
  const Introduction most{
      .epoch = 0xffffffff, .from = 0x7fffffff, .to = -0x7fffffff - 1, .stream = 0xfffe, .streams = 0xffff};
  Conversation talk(kKey, kKey, most, {.epoch = 0xffffffff, .from = -0x7fffffff - 1});
  talk.run();
  ASSERT_TRUE(talk.both_done());
  EXPECT_EQ(talk.acceptor.greeting.theirs(), most);
}

TEST(Greeting, TheHelloIsByteForByteWhatTheHeaderDraws) {
  Party connector(Side::kConnects, kKey,
                  {.epoch = 0x04030201, .from = 2, .to = -2, .stream = 0x0605, .streams = 0x0807});
  const Bytes hello = connector.speak();
  const unsigned char expected[] = {'s', 'l', 'p', 's', 1, 0, 0, 0, 5,    6,    7,    8,
                                    1,   2,   3,   4,   2, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff};
  ASSERT_EQ(hello.size(), 56U);
  for (std::size_t i = 0; i < sizeof expected; ++i) EXPECT_EQ(hello[i], std::byte{expected[i]}) << i;
}

TEST(Greeting, BytesThatFollowItAreLeftAlone) {
  Conversation talk;
  Bytes more = talk.connector.speak();
  EXPECT_TRUE(talk.acceptor.hear(more).empty());
  talk.connector.hear(talk.acceptor.speak());
  more = talk.connector.speak();
  more.resize(more.size() + 5);
  EXPECT_EQ(talk.acceptor.hear(more).size(), 5U);
  more = talk.acceptor.speak();
  more.resize(more.size() + 9);
  EXPECT_EQ(talk.connector.hear(more).size(), 9U);
  EXPECT_TRUE(talk.both_done());
}

TEST(Greeting, IsNotDoneBeforeTheLastByteHasBeenSaid) {
  Conversation talk;
  talk.acceptor.hear(talk.connector.speak());
  talk.connector.hear(talk.acceptor.speak());
  talk.acceptor.hear(talk.connector.speak());
  talk.acceptor.speak(35);
  EXPECT_FALSE(talk.acceptor.greeting.done());
  EXPECT_THROW(talk.acceptor.greeting.theirs(), Error);
  talk.acceptor.speak(1);
  EXPECT_TRUE(talk.acceptor.greeting.done());
}

TEST(Greeting, AnotherSecretIsAClearErrorOnBothSides) {
  for (const bool connector_is_wrong : {true, false}) {
    Conversation talk(connector_is_wrong ? kOtherKey : kKey, connector_is_wrong ? kKey : kOtherKey);
    talk.run();
    EXPECT_EQ(talk.acceptor.error, "the other side does not have this job's secret");
    EXPECT_TRUE(has(talk.connector.error, "the other side has another secret")) << talk.connector.error;
  }
}

TEST(Greeting, AStrangerGetsNothingThatWasMadeWithTheKey) {
  Conversation talk(kOtherKey, kKey);
  talk.run();
  ASSERT_EQ(talk.acceptor.spoken.size(), 48U + 36U);
  for (std::size_t i = 48 + 4; i < 48 + 36; ++i) EXPECT_EQ(talk.acceptor.spoken[i], std::byte{0}) << i;
}

TEST(Greeting, AnAcceptorThatPretendsIsFoundOut) {
  Conversation talk(kKey, kOtherKey);
  talk.run(1000, [](Side from, std::size_t place, Bytes& bytes) {
    if (from == Side::kAccepts && place >= 48) bytes[0] = std::byte{0};  // its refusal becomes a welcome
  });
  EXPECT_EQ(talk.connector.error, "the other side does not have this job's secret");
}

TEST(Greeting, AnotherEpochIsAClearErrorOnBothSides) {
  Introduction old = kConnector;
  old.epoch = 3;
  Conversation talk(kKey, kKey, old);
  talk.run();
  EXPECT_EQ(talk.acceptor.error, "epoch 3 was offered, this job is in epoch 4");
  EXPECT_EQ(talk.connector.error, "epoch 3 was offered, the other side is in epoch 4");
}

TEST(Greeting, AnotherRankIsAClearErrorOnBothSides) {
  Introduction astray = kConnector;
  astray.to = 8;
  Conversation talk(kKey, kKey, astray);
  talk.run();
  EXPECT_EQ(talk.acceptor.error, "rank 2 wants to reach rank 8, this is rank 7");
  EXPECT_EQ(talk.connector.error, "rank 8 was wanted, rank 7 answered");
}

TEST(Greeting, AStrangerIsNotToldWhetherItsEpochWasRight) {
  Introduction old = kConnector;
  old.epoch = 3;
  Conversation talk(kOtherKey, kKey, old);
  talk.run();
  EXPECT_EQ(talk.acceptor.error, "the other side does not have this job's secret");
}

TEST(Greeting, AStreamThatThereCannotBeIsRefusedWhereItIsMade) {
  Introduction none = kConnector;
  none.stream = none.streams;
  EXPECT_THROW(Greeting(Side::kConnects, kKey, none), Error);
}

TEST(Greeting, AnotherVersionIsAClearErrorOnBothSides) {
  Conversation talk;
  talk.run(1000, [](Side from, std::size_t place, Bytes& bytes) {
    if (from == Side::kConnects && place == 0) bytes[4] = std::byte{9};
  });
  EXPECT_TRUE(has(talk.acceptor.error, "version 9")) << talk.acceptor.error;
  EXPECT_TRUE(has(talk.connector.error, "another version")) << talk.connector.error;
  Conversation newer;
  newer.run(1000, [](Side from, std::size_t place, Bytes& bytes) {
    if (from == Side::kAccepts && place == 0) bytes[4] = std::byte{9};
  });
  EXPECT_TRUE(has(newer.connector.error, "version 9")) << newer.connector.error;
}

TEST(Greeting, AnotherProtocolIsRefusedAtTheFirstByteThatDiffersAndGetsNoAnswer) {
  for (const Side side : {Side::kConnects, Side::kAccepts}) {
    const std::string texts[] = {"GET / HTTP/1.1\r\n", "slow", "slppppp", "\x16\x03\x01\x02"};
    const std::size_t needed[] = {1, 3, 4, 1};
    for (std::size_t t = 0; t < 4; ++t) {
      Party party(side, kKey, side == Side::kConnects ? kConnector : kAcceptor);
      party.speak();
      const auto bytes = std::as_bytes(std::span(texts[t]));
      party.hear(bytes.first(needed[t] - 1), 1);
      EXPECT_EQ(party.error, "");
      party.hear(bytes.subspan(needed[t] - 1, 1));
      EXPECT_TRUE(has(party.error, t < 3 ? "this is not a slipstream peer" : "speaks TLS")) << party.error;
      EXPECT_TRUE(party.greeting.says().empty());
    }
  }
}

// Every bit of all four messages, changed on the way.
TEST(Greeting, NoBitOfAnyMessageCanBeFlippedUnnoticed) {
  for (const Side victim : {Side::kConnects, Side::kAccepts}) {
    const std::size_t size = victim == Side::kConnects ? 56 + 32 : 48 + 36;
    for (std::size_t bit = 0; bit < size * 8; ++bit) {
      Conversation talk;
      bool flipped = false;
      talk.run(1000, [&](Side from, std::size_t place, Bytes& bytes) {
        if (from != victim || bit / 8 < place || bit / 8 >= place + bytes.size()) return;
        bytes[bit / 8 - place] ^= std::byte{1} << (bit % 8);
        flipped = true;
      });
      ASSERT_TRUE(flipped) << bit;
      ASSERT_FALSE(talk.both_done()) << bit;
      ASSERT_FALSE(talk.connector.error.empty() && talk.acceptor.error.empty()) << bit;
      // Only the very last message, which nobody answers, can leave one side content.
      ASSERT_EQ(talk.acceptor.greeting.done(), victim == Side::kAccepts && bit / 8 >= 48) << bit;
      ASSERT_FALSE(talk.connector.greeting.done()) << bit;
    }
  }
}

TEST(Greeting, ARecordedConversationIsRefusedByBothSides) {
  Conversation recorded;
  recorded.run();
  ASSERT_TRUE(recorded.both_done());
  Party acceptor(Side::kAccepts, kKey, kAcceptor);
  acceptor.hear(recorded.connector.spoken);
  EXPECT_EQ(acceptor.error, "the other side does not have this job's secret");
  Party connector(Side::kConnects, kKey, kConnector);
  connector.hear(recorded.acceptor.spoken);
  EXPECT_EQ(connector.error, "the other side does not have this job's secret");
}

TEST(Greeting, AMemberThatHearsItselfIsNotFooled) {
  Party one(Side::kConnects, kKey, kConnector), two(Side::kConnects, kKey, kConnector);
  for (int round = 0; round < 4; ++round) {
    two.hear(one.speak());
    one.hear(two.speak());
  }
  EXPECT_FALSE(one.greeting.done());
  EXPECT_FALSE(two.greeting.done());
}

TEST(Greeting, ATruncatedConversationIsNeverDone) {
  for (const Side victim : {Side::kConnects, Side::kAccepts}) {
    const std::size_t size = victim == Side::kConnects ? 56 + 32 : 48 + 36;
    for (std::size_t kept = 0; kept < size; ++kept) {
      Conversation talk;
      talk.run(1000, [&](Side from, std::size_t place, Bytes& bytes) {
        if (from == victim) bytes.resize(std::min(bytes.size(), kept - std::min(kept, place)));
      });
      Party& deprived = victim == Side::kConnects ? talk.acceptor : talk.connector;
      ASSERT_FALSE(deprived.greeting.done()) << kept;
      ASSERT_FALSE(talk.connector.greeting.done()) << kept;
      ASSERT_EQ(deprived.error, "") << kept;
    }
  }
}

TEST(Greeting, TakingOrSayingMoreThanThereIsIsOurBug) {
  Party acceptor(Side::kAccepts, kKey, kAcceptor);
  EXPECT_THROW(acceptor.greeting.take(57), Error);
  EXPECT_THROW(acceptor.greeting.said(1), Error);
}

// Bytes changed, cut out, doubled and invented, at random places: whatever comes, nobody is fooled and nothing breaks.
TEST(Greeting, AHundredThousandMutatedInputsAreRefusedOrWaitedFor) {
  Conversation recorded;
  recorded.run();
  Rng rng(1);
  for (int round = 0; round < 100'000; ++round) {
    const Side side = rng.below(2) == 0 ? Side::kConnects : Side::kAccepts;
    Bytes input = side == Side::kConnects ? recorded.acceptor.spoken : recorded.connector.spoken;
    const std::uint64_t kind = rng.below(4);
    for (std::uint64_t n = rng.below(8); n > 0 && !input.empty(); --n) {
      const auto place = input.begin() + static_cast<std::ptrdiff_t>(rng.below(input.size()));
      if (kind == 0) *place = static_cast<std::byte>(rng.next());
      if (kind == 1) input.erase(place);
      if (kind == 2) input.insert(place, *place);
    }
    if (kind == 3) {
      for (std::byte& b : input) b = static_cast<std::byte>(rng.next());
      if (rng.below(2) == 0) std::copy_n(recorded.connector.spoken.begin(), 6, input.begin());  // magic and version
    }
    Party party(side, kKey, side == Side::kConnects ? kConnector : kAcceptor);
    party.hear(input, 1 + rng.below(40));
    ASSERT_FALSE(party.greeting.done()) << round;
    while (!party.speak(1 + rng.below(40)).empty()) {
    }
    ASSERT_FALSE(party.greeting.done()) << round;
  }
}

}  // namespace
}  // namespace slipstream
