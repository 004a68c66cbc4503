// SPDX-License-Identifier: Apache-2.0
#include "wire/inbox.h"

#include <cstdlib>
#include <deque>
#include <new>
#include <set>

#include "base/rng.h"
#include "kit/fuzz.h"
#include "task/files.h"
#include "wire/outbox.h"

// Counts what this thread allocates, in the whole test program.
namespace {
thread_local std::size_t allocated_bytes = 0;
}  // namespace

#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // where ours is inlined, its malloc() looks like a mistake

void* operator new(std::size_t size) {
  allocated_bytes += size;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  allocated_bytes += size;
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new[](std::size_t size, const std::nothrow_t& tag) noexcept { return operator new(size, tag); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace slipstream {
namespace {

using test::expect_error;
using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kEpoch = 3;
constexpr std::uint64_t kPiece = FrameHead::kPieceBytes;
constexpr int kPeer = 4;

struct Owner final : TransferOwner {
  void ended(Transfer& transfer, bool arrived) override { ends.emplace_back(&transfer, arrived); }
  int count(const Transfer& transfer, bool arrived) const {
    return static_cast<int>(std::count(ends.begin(), ends.end(), std::pair(const_cast<Transfer*>(&transfer), arrived)));
  }
  std::vector<std::pair<Transfer*, bool>> ends;
};

struct Receive {
  Receive(Owner& owner, Tag tag, std::uint64_t number, std::size_t bytes, std::size_t cut = 0) : memory(bytes) {
    transfer.peer = kPeer;
    transfer.tag = tag;
    transfer.number = number;
    transfer.owner = &owner;
    transfer.parts.ranges = {std::span(memory).first(cut), std::span(memory).subspan(cut)};
  }
  Bytes memory;
  Transfer transfer;
};

Bytes content(Tag tag, std::uint64_t number, std::size_t bytes) {
  Bytes all(bytes);
  Rng rng(tag, number);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = rng.next();
    std::memcpy(all.data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return all;
}

FrameHead piece(Tag tag, std::uint64_t number, std::uint64_t total, std::uint64_t offset) {
  return {FrameHead::Kind::kData,
          static_cast<std::uint8_t>(lane_of(tag)),
          kEpoch,
          tag,
          number,
          total,
          offset,
          std::min(kPiece, total - std::min(total, offset))};
}

class Recorder final : public Listener {
 public:
  struct Letter {
    int from;
    Tag tag;
    Bytes bytes;
  };
  void begins(int, Tag, const LetterHead&, std::uint64_t body_bytes) override {
    begun.push_back(body_bytes);
    if (body_bytes > most) fail<FabricError>("the listener refuses {} bytes", body_bytes);
  }
  void failed(const std::string&) override {}
  void arrived(int from, Tag tag, const LetterHead& head, std::span<const std::byte> body, Answers&) override {
    Bytes all(head.begin(), head.end());
    all.insert(all.end(), body.begin(), body.end());
    letters.push_back({from, tag, all});
  }
  bool finished(int, Tag) const override { return letters.size() == last + 1; }
  std::size_t last = ~std::size_t{0} - 1;  // after this one it hears no more
  std::uint64_t most = ~std::uint64_t{0};
  std::vector<std::uint64_t> begun;
  std::vector<Letter> letters;
};

struct NoAnswers final : Answers {
  void send(int, Tag, const LetterHead&, std::shared_ptr<const Floats>) override {}
};

class InboxTest : public testing::Test {
 protected:
  explicit InboxTest(std::uint64_t window = 20 * kPiece)
      : in(
            kPeer, window, [this](Tag tag) { return listens.count(tag) > 0 ? &listener : nullptr; }, answers) {}

  // A frame comes in, in steps of so many bytes; `between` runs after each.
  void deliver(const FrameHead& head, const Bytes& message, std::size_t step = ~std::size_t{0},
               const std::function<void(std::uint64_t)>& between = {}) {
    in.begins(head);
    for (std::uint64_t at = 0; at < head.length;) {
      const auto memory = in.memory(head, at);
      ASSERT_FALSE(memory.empty());
      const std::size_t count = std::min({memory.size(), step, static_cast<std::size_t>(head.length - at)});
      std::memcpy(memory.data(), message.data() + head.offset + at, count);
      at += count;
      if (between && at < head.length) between(at);
    }
    in.arrived(head);
  }
  void deliver_all(Tag tag, std::uint64_t number, const Bytes& message) {
    for (std::uint64_t offset = 0; offset < message.size(); offset += kPiece) {
      deliver(piece(tag, number, message.size(), offset), message);
    }
  }
  void listen(Tag tag) {
    listens.insert(tag);
    in.listener_changed(tag);
  }
  void refuses(const FrameHead& head, std::initializer_list<std::string> words) {
    expect_error<FabricError>([&] { in.begins(head); }, words);
  }

  Owner owner;
  Recorder listener;
  std::set<Tag> listens;
  NoAnswers answers;
  Inbox in;
};

TEST_F(InboxTest, AMessageGoesStraightIntoTheMemoryThatWasPosted) {
  Receive receive(owner, 1, 0, 2 * kPiece + 5, kPiece - 3);
  const Bytes sent = content(1, 0, receive.memory.size());
  EXPECT_FALSE(in.expects());
  in.post(receive.transfer);
  EXPECT_TRUE(in.expects());
  EXPECT_EQ(in.awaited(), &receive.transfer);
  deliver_all(1, 0, sent);
  EXPECT_EQ(receive.memory, sent);
  EXPECT_EQ(owner.count(receive.transfer, true), 1);
  EXPECT_EQ(receive.transfer.moved.load(), sent.size());
  EXPECT_EQ(in.kept_bytes(), 0U);
  EXPECT_FALSE(in.expects());
  EXPECT_EQ(in.awaited(), nullptr);
  EXPECT_EQ(in.taken(0), 2 * kPiece + 256);
  EXPECT_EQ(in.taken(1), 0U);
}

// The receive comes before, between or in the middle of pieces, and after all of them; pieces come in every order.
TEST_F(InboxTest, PiecesInAnyOrderAndAReceiveAtAnyMomentGiveTheSame) {
  const std::uint64_t total = 2 * kPiece + 100;
  std::vector<std::uint64_t> order = {0, kPiece, 2 * kPiece};
  std::uint64_t number = 0;
  do {
    for (int moment = 0; moment <= 6; ++moment, ++number) {
      owner.ends.clear();
      Receive receive(owner, 1, number, total, 70);
      const Bytes sent = content(1, number, total);
      int now = 0;
      const auto tick = [&](std::uint64_t = 0) {
        if (now++ == moment) in.post(receive.transfer);
      };
      for (const std::uint64_t offset : order) {
        tick();
        bool once = false;
        deliver(piece(1, number, total, offset), sent, 60, [&](std::uint64_t) {
          if (!std::exchange(once, true)) tick();
        });
        ASSERT_LE(in.kept_bytes(), total);
      }
      tick();
      ASSERT_EQ(receive.memory, sent) << "moment " << moment;
      ASSERT_EQ(owner.count(receive.transfer, true), 1);
      ASSERT_EQ(in.kept_bytes(), 0U);
      ASSERT_EQ(in.taken(0), (number + 1) * (2 * kPiece + 256));
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(InboxTest, AReceiveMayBeWithdrawnAtAnyMomentAndWhatComesForItIsThrownAway) {
  const std::uint64_t total = kPiece + 100;
  for (std::uint64_t moment = 0; moment < 5; ++moment) {
    owner.ends.clear();
    Receive receive(owner, 1, moment, total);
    const Bytes sent = content(1, moment, total);
    std::uint64_t now = 0;
    const auto tick = [&](std::uint64_t = 0) {
      if (now++ != moment) return;
      in.withdraw(receive.transfer);
      std::fill(receive.memory.begin(), receive.memory.end(), std::byte{0});  // its owner's again
    };
    in.post(receive.transfer);
    for (const std::uint64_t offset : {std::uint64_t{0}, kPiece}) {
      tick();
      bool once = false;
      deliver(piece(1, moment, total, offset), sent, 60, [&](std::uint64_t) {
        if (!std::exchange(once, true)) tick();
      });
    }
    tick();
    EXPECT_EQ(owner.count(receive.transfer, moment == 4), 1) << moment;
    EXPECT_EQ(owner.count(receive.transfer, moment != 4), 0) << moment;
    EXPECT_EQ(receive.memory, Bytes(total)) << "touched after it was withdrawn";
    EXPECT_EQ(in.kept_bytes(), 0U);
    EXPECT_FALSE(in.expects());
    EXPECT_EQ(in.taken(0), (moment + 1) * (kPiece + 256)) << "the peer has its credit back";
  }
  Receive next(owner, 1, 5, 10);
  in.post(next.transfer);
  deliver_all(1, 5, content(1, 5, 10));
  EXPECT_EQ(next.memory, content(1, 5, 10));
}

TEST_F(InboxTest, WithdrawingWhatWasNeverPostedOrHasEndedChangesNothing) {
  Receive never(owner, 1, 7, 10), done(owner, 1, 0, 10);
  in.withdraw(never.transfer);
  in.post(done.transfer);
  deliver_all(1, 0, content(1, 0, 10));
  in.withdraw(done.transfer);
  EXPECT_EQ(owner.ends.size(), 1U);
}

TEST_F(InboxTest, SizesThatDifferAreRefused) {
  Receive posted(owner, 1, 0, 10), late(owner, 2, 0, 10);
  in.post(posted.transfer);
  refuses(piece(1, 0, 11, 0), {"11 bytes came where 10 are received (tag 1)", "same steps"});
  deliver_all(2, 0, content(2, 0, 9));
  expect_error<FabricError>([&] { in.post(late.transfer); }, {"9 bytes came where 10 are received"});
  EXPECT_TRUE(owner.ends.empty()) << "a receive that was refused is not the inbox's";
  EXPECT_EQ(in.abandon(), std::vector<Transfer*>{&posted.transfer});
}

TEST_F(InboxTest, AMessageThatChangesItsSizeIsRefused) {
  deliver(piece(1, 0, 3 * kPiece, 0), content(1, 0, 3 * kPiece));
  refuses(piece(1, 0, 2 * kPiece, kPiece), {"its message changes its size"});
}

TEST_F(InboxTest, AReceiveThatIsPostedTwiceIsOurBug) {
  Receive a(owner, 1, 0, 10), b(owner, 1, 0, 10);
  in.post(a.transfer);
  EXPECT_THROW(in.post(b.transfer), Error);
}

// Also while the first is half here, and whether or not it is kept.
TEST_F(InboxTest, APieceThatWasHereBeforeIsRefused) {
  const std::uint64_t total = 5 * kPiece;
  for (const Tag tag : {1, 2}) {
    Receive receive(owner, tag, 0, total);
    if (tag == 2) in.post(receive.transfer);
    for (const std::uint64_t offset : {3 * kPiece, std::uint64_t{0}, kPiece}) {
      deliver(piece(tag, 0, total, offset), content(tag, 0, total));
    }
    in.begins(piece(tag, 0, total, 4 * kPiece));
    for (const std::uint64_t p : {0, 1, 3, 4})
      refuses(piece(tag, 0, total, p * kPiece), {"its bytes were here before"});
    deliver(piece(tag, 0, total, 2 * kPiece), content(tag, 0, total));
    refuses(piece(tag, 0, total, 2 * kPiece), {"its bytes were here before"});
    if (tag == 2) in.withdraw(receive.transfer);
  }
}

TEST_F(InboxTest, ANumberThatIsOverOrFarAheadIsRefused) {
  Receive receive(owner, 1, 0, 10);
  in.post(receive.transfer);
  deliver_all(1, 0, content(1, 0, 10));
  refuses(piece(1, 0, 10, 0), {"message 0 of tag 1 where 1 comes next"});
  refuses(piece(1, (1 << 20) + 1, 10, 0), {"message 1048577 of tag 1 where 1 comes next"});
  refuses(piece(1, ~std::uint64_t{0}, 10, 0), {"where 1 comes next"});
}

TEST_F(InboxTest, ATagOfTheOtherLaneIsRefused) {
  FrameHead head = piece(kBackground | 1, 0, 10, 0);
  head.lane = 0;
  refuses(head, {"its tag belongs to the other lane"});
}

TEST_F(InboxTest, APeerThatOverdrawsItsWindowIsRefusedUntilItHasCredit) {
  const Bytes sent = content(1, 0, 21 * kPiece);
  for (std::uint64_t p = 0; p < 20; ++p) deliver(piece(1, 0, sent.size(), p * kPiece), sent);
  EXPECT_EQ(in.kept_bytes(), 20 * kPiece);
  refuses(piece(1, 0, sent.size(), 20 * kPiece), {"more bytes are under way than the window of 1310720 allows"});
  refuses(piece(2, 0, 1, 0), {"more bytes are under way"});
  deliver_all(kBackground, 0, content(kBackground, 0, kPiece));  // the other lane has a window of its own
  Receive receive(owner, 1, 0, sent.size());
  in.post(receive.transfer);
  EXPECT_EQ(in.taken(0), 20 * kPiece);
  deliver(piece(1, 0, sent.size(), 20 * kPiece), sent);
  EXPECT_EQ(receive.memory, sent);
}

TEST_F(InboxTest, APieceCountsFromItsBeginningUntilItIsTaken) {
  for (std::uint64_t p = 0; p < 20; ++p) in.begins(piece(1, p, kPiece, 0));
  refuses(piece(1, 20, kPiece, 0), {"more bytes are under way"});
}

TEST_F(InboxTest, TinyMessagesCountForWhatTheyCost) {
  for (std::uint64_t n = 0; n < 20 * kPiece / 256; ++n) deliver_all(1, n, content(1, n, 1));
  refuses(piece(1, 20 * kPiece / 256, 1, 0), {"more bytes are under way"});
}

// Hostile heads: what one makes us allocate is a piece at most, whatever it claims.
TEST_F(InboxTest, NothingIsAllocatedForWhatAHeadOnlyClaims) {
  const auto costs = [&](const FrameHead& head, bool accepted) {
    const std::size_t before = allocated_bytes;
    if (accepted) {
      in.begins(head);
      EXPECT_FALSE(in.memory(head, 0).empty());
    } else {
      EXPECT_THROW(in.begins(head), FabricError);
    }
    return allocated_bytes - before;
  };
  const std::uint64_t most = FrameHead::kMessageBytes;
  EXPECT_LT(costs(piece(1, 0, most, 0), true), kPiece + 4096);
  EXPECT_LT(costs(piece(1, 0, most, most - kPiece), true), kPiece + 4096);
  EXPECT_LT(costs(piece(2, (1 << 20) - 1, 1, 0), true), 4096U);
  EXPECT_LT(costs(piece(3, (1 << 20) - 1, most, 0), true), kPiece + 4096);
  EXPECT_LT(costs(piece(4, 1 << 20, most, 0), false), 4096U);
  listen(5);
  listener.most = 1000;
  const FrameHead letter = piece(5, 0, most, 0);
  const std::size_t before = allocated_bytes;
  in.begins(letter);
  EXPECT_EQ(in.memory(letter, 0).size(), kLetterHeadBytes);
  EXPECT_THROW(in.memory(letter, kLetterHeadBytes), FabricError);
  EXPECT_LT(allocated_bytes - before, 4096U);
}

// All that a peer can make us keep, by any heads, stays a small multiple of the window.
TEST_F(InboxTest, AHostilePeerCannotMakeUsKeepMuchMoreThanItsWindow) {
  for (std::uint64_t seed = 0; seed < test::fuzz_seeds(20); ++seed) {
    Inbox fresh(
        kPeer, 20 * kPiece, [](Tag) { return nullptr; }, answers);
    Rng rng(seed);
    const std::size_t before = allocated_bytes;
    std::uint64_t refused = 0;
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t total = 1 + rng.below(seed % 2 == 0 ? 300 : FrameHead::kMessageBytes);
      const std::uint64_t offset = rng.below((total + kPiece - 1) / kPiece) * kPiece;
      const FrameHead head = piece(static_cast<Tag>(rng.next()), rng.below(2 << 20), total, offset);
      try {
        fresh.begins(head);
        fresh.memory(head, 0);
        if (rng.below(2) == 0) fresh.arrived(head);
      } catch (const FabricError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 0U);
    EXPECT_LE(fresh.kept_bytes(), 2 * 20 * kPiece);
    EXPECT_LT(allocated_bytes - before, 10 * 2 * 20 * kPiece) << "seed " << seed;
  }
}

TEST_F(InboxTest, LettersGoToTheirListenerInTheOrderInWhichTheyWereSent) {
  listen(9);
  std::vector<Bytes> sent;
  for (const std::size_t bytes : {kLetterHeadBytes, kLetterHeadBytes + 1, std::size_t{3 * kPiece}, std::size_t{100}}) {
    sent.push_back(content(9, sent.size(), bytes));
  }
  // The last first, and the long one from its end.
  deliver_all(9, 3, sent[3]);
  deliver(piece(9, 2, 3 * kPiece, 2 * kPiece), sent[2]);
  deliver(piece(9, 2, 3 * kPiece, 0), sent[2], 7);
  deliver_all(9, 0, sent[0]);
  EXPECT_EQ(listener.letters.size(), 1U);
  deliver(piece(9, 2, 3 * kPiece, kPiece), sent[2]);
  EXPECT_EQ(listener.letters.size(), 1U);
  deliver_all(9, 1, sent[1]);
  ASSERT_EQ(listener.letters.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(listener.letters[i].bytes, sent[i]);
    EXPECT_EQ(listener.letters[i].from, kPeer);
    EXPECT_EQ(listener.letters[i].tag, 9U);
  }
  EXPECT_EQ(in.kept_bytes(), 0U);
}

// A listener comes, or goes and comes again, after every number of bytes of three letters.
TEST_F(InboxTest, AListenerMayComeAndGoAtAnyMomentAndMissesNothing) {
  std::uint64_t number = 0;
  for (const bool there_before : {false, true}) {
    for (std::uint64_t moment = 0; moment <= 6; ++moment) {
      listens.clear();
      in.listener_changed(9);
      if (there_before) listen(9);
      listener.letters.clear();
      std::uint64_t now = 0;
      const auto tick = [&](std::uint64_t = 0) {
        if (now++ != moment) return;
        listens.clear();
        in.listener_changed(9);
        if (!there_before) listen(9);
      };
      std::vector<Bytes> sent;
      for (int i = 0; i < 3; ++i, ++number) {
        sent.push_back(content(9, number, 100));
        tick();
        bool once = false;
        deliver(piece(9, number, 100, 0), sent.back(), moment % 2 == 0 ? 20 : 60, [&](std::uint64_t) {
          if (!std::exchange(once, true)) tick();
        });
      }
      tick();
      listen(9);
      ASSERT_EQ(listener.letters.size(), 3U) << moment;
      for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(listener.letters[i].bytes, sent[i]) << moment << ", letter " << i;
      ASSERT_EQ(in.kept_bytes(), 0U);
    }
  }
}

TEST_F(InboxTest, LettersAfterTheLastOneWaitForTheNextListener) {
  listen(9);
  listener.last = 1;
  for (std::uint64_t n = 0; n < 4; ++n) deliver_all(9, n, content(9, n, 100));
  EXPECT_EQ(listener.letters.size(), 2U);
  EXPECT_EQ(listener.begun.size(), 2U);
  listens.clear();
  in.listener_changed(9);
  listener.last = ~std::size_t{0} - 1;
  listen(9);
  ASSERT_EQ(listener.letters.size(), 4U);
  EXPECT_EQ(listener.letters[3].bytes, content(9, 3, 100));
}

TEST_F(InboxTest, LettersThatAreTooShortAreRefusedWheneverTheListenerComes) {
  listen(9);
  refuses(piece(9, 0, kLetterHeadBytes - 1, 0), {"a message of 47 bytes is refused", "too short for a head"});
  deliver_all(8, 0, content(8, 0, 10));
  expect_error<FabricError>([&] { listen(8); }, {"a message of 10 bytes is refused"});
  expect_error<FabricError>(
      [&] { deliver(piece(7, 0, 10, 0), content(7, 0, 10), 5, [&](std::uint64_t) { listen(7); }); },
      {"a message of 10 bytes is refused"});
}

TEST_F(InboxTest, ALetterThatItsListenerRefusesGetsNoMemory) {
  listen(9);
  listener.most = 1000;
  const Bytes sent = content(9, 0, 2000);
  expect_error<FabricError>([&] { deliver(piece(9, 0, 2000, 0), sent); }, {"the listener refuses 1952 bytes"});
  deliver_all(8, 0, sent);
  expect_error<FabricError>([&] { listen(8); }, {"the listener refuses 1952 bytes"});
}

TEST_F(InboxTest, AfterAbandonEverythingThatComesIsThrownAway) {
  Receive a(owner, 1, 0, 2 * kPiece), b(owner, 2, 5, 10);
  in.post(a.transfer);
  in.post(b.transfer);
  const Bytes sent = content(1, 0, 2 * kPiece);
  std::vector<Transfer*> all;
  deliver(piece(1, 0, 2 * kPiece, 0), sent, 1000, [&](std::uint64_t at) {
    if (at == 3000) all = in.abandon();
  });
  EXPECT_EQ(all.size(), 2U);
  EXPECT_TRUE(owner.ends.empty());
  EXPECT_NE(a.memory[2999], std::byte{0});
  EXPECT_EQ(Bytes(a.memory.begin() + 3000, a.memory.end()), Bytes(2 * kPiece - 3000));
  for (std::uint64_t n = 0; n < 100; ++n) deliver_all(1, n << 30, sent);  // whatever it is
  EXPECT_EQ(in.kept_bytes(), 0U);
  EXPECT_FALSE(in.expects());
  EXPECT_EQ(in.awaited(), nullptr);
  EXPECT_TRUE(in.abandon().empty());
}

// An outbox, several links that keep the order of their frames, an inbox: everything that may happen, at random.
class Traffic {
 public:
  explicit Traffic(std::uint64_t seed)
      : rng_(seed),
        window_((2 + rng_.below(4)) * kPiece),
        out_(kEpoch, window_),
        in_(
            kPeer, window_, [this](Tag tag) { return tag == kLetters && listens_ ? &listener_ : nullptr; }, answers_),
        links_(1 + rng_.below(3)) {}

  void run() {
    const std::uint64_t messages = 5 + rng_.below(20);
    for (std::uint64_t done = 0; done < messages;) {
      step(rng_.below(7));
      if (rng_.below(4) == 0) {
        send();
        ++done;
      }
      check_bounds();
    }
    while (receives_.size() < sends_.size()) post();  // each tag as many as were sent
    listen();
    std::uint64_t idle = 0;
    while (!quiet()) {
      ASSERT_LT(++idle, 1'000'000U) << "the traffic stands still";
      step(rng_.below(4));
      check_bounds();
    }
    check_end();
  }

 private:
  static constexpr Tag kLetters = 40;
  static constexpr Tag kTags[] = {1, 2, kBackground | 1, kBackground | 7, kLetters};

  struct Sent {
    Bytes memory;
    Transfer transfer;
  };
  struct Link {
    std::deque<OutFrame> leaving;  // at most one: half sent
    std::deque<std::pair<FrameHead, Bytes>> on_the_way;
    std::uint64_t arrived = 0;  // of the first
    bool begun = false;
  };

  void step(std::uint64_t what) {
    switch (what) {
      case 0:
        return draw(links_[rng_.below(links_.size())]);
      case 1:
      case 2:
        return arrive(links_[rng_.below(links_.size())]);
      case 3:
        return give_credit();
      case 4:
        return post();
      case 5:
        return withdraw();
      default:
        if (rng_.below(10) == 0) listen();
    }
  }

  void send() {
    const Tag tag = kTags[rng_.below(std::size(kTags))];
    std::uint64_t bytes = 1 + (rng_.below(3) == 0 ? rng_.below(3 * kPiece) : rng_.below(300));
    if (tag == kLetters) bytes += kLetterHeadBytes - 1;
    auto& sent = sends_[{tag, sent_[tag]}];
    sent.memory = content(tag, sent_[tag], bytes);
    const std::size_t cut = rng_.below(bytes + 1);
    sent.transfer.tag = tag;
    sent.transfer.number = sent_[tag]++;
    sent.transfer.owner = &owner_;
    sent.transfer.parts.ranges = {std::span(sent.memory).first(cut), std::span(sent.memory).subspan(cut)};
    charged_[static_cast<std::size_t>(lane_of(tag))] +=
        bytes / kPiece * kPiece + (bytes % kPiece > 0 ? charge_of(bytes % kPiece) : 0);
    out_.add(sent.transfer);
  }

  // The next receive of a tag; what is not sent yet is received ahead only where its size is known, so never.
  void post() {
    const Tag tag = kTags[rng_.below(std::size(kTags))];
    const std::uint64_t number = posted_[tag];
    const auto sent = sends_.find({tag, number});
    if (sent == sends_.end()) return;
    ++posted_[tag];
    auto& receive = receives_[{tag, number}];
    if (tag == kLetters) return;  // the listener's
    const std::size_t bytes = sent->second.memory.size(), cut = rng_.below(bytes + 1);
    receive.memory.resize(bytes);
    receive.transfer.tag = tag;
    receive.transfer.number = number;
    receive.transfer.owner = &owner_;
    receive.transfer.parts.ranges = {std::span(receive.memory).first(cut), std::span(receive.memory).subspan(cut)};
    in_.post(receive.transfer);
  }

  void withdraw() {
    if (receives_.empty() || rng_.below(4) != 0) return;
    auto at = receives_.begin();
    std::advance(at, rng_.below(receives_.size()));
    Transfer& transfer = at->second.transfer;
    if (transfer.owner == nullptr) return;
    in_.withdraw(transfer);
    if (owner_.count(transfer, false) > 0) std::fill(at->second.memory.begin(), at->second.memory.end(), std::byte{0});
  }

  void listen() {
    listens_ = true;
    in_.listener_changed(kLetters);
  }

  void draw(Link& link) {
    if (!link.leaving.empty()) {  // the rest of it leaves
      out_.left(link.leaving.front());
      link.leaving.pop_front();
      return;
    }
    OutFrame frame;
    if (!out_.next(frame)) return;
    ASSERT_EQ(frame.head.kind, FrameHead::Kind::kData);
    ASSERT_EQ(FrameHead::unpack(frame.head.pack(), kEpoch), frame.head);
    Bytes bytes;
    for (const auto& part : frame.pieces) bytes.insert(bytes.end(), part.begin(), part.end());
    under_way_[frame.head.lane] += charge_of(frame.head.length);
    link.on_the_way.emplace_back(frame.head, std::move(bytes));
    link.leaving.push_back(frame);
  }

  void arrive(Link& link) {
    if (link.on_the_way.empty()) return;
    const auto& [head, bytes] = link.on_the_way.front();
    if (!std::exchange(link.begun, true)) in_.begins(head);
    for (std::uint64_t left = 1 + (rng_.below(2) == 0 ? kPiece : rng_.below(100));
         left > 0 && link.arrived < head.length;) {
      const auto memory = in_.memory(head, link.arrived);
      ASSERT_FALSE(memory.empty());
      const std::uint64_t count = std::min({left, std::uint64_t{memory.size()}, head.length - link.arrived});
      std::memcpy(memory.data(), bytes.data() + link.arrived, count);
      link.arrived += count;
      left -= count;
    }
    if (link.arrived < head.length) return;
    in_.arrived(head);
    link.on_the_way.pop_front();
    link.arrived = 0;
    link.begun = false;
  }

  void give_credit() {
    for (const int lane : {0, 1}) {
      under_way_[static_cast<std::size_t>(lane)] -= in_.taken(lane) - told_[static_cast<std::size_t>(lane)];
      told_[static_cast<std::size_t>(lane)] = in_.taken(lane);
      out_.credit(lane, in_.taken(lane));
    }
  }

  bool quiet() const {
    return out_.empty() && std::all_of(links_.begin(), links_.end(), [](const Link& link) {
             return link.leaving.empty() && link.on_the_way.empty();
           });
  }

  void check_bounds() {
    for (const std::uint64_t bytes : under_way_) ASSERT_LE(bytes, window_);
    ASSERT_LE(in_.kept_bytes(), 2 * window_);
  }

  void check_end() {
    EXPECT_EQ(in_.kept_bytes(), 0U);
    EXPECT_FALSE(in_.expects());
    for (const std::size_t lane : {0, 1}) EXPECT_EQ(in_.taken(static_cast<int>(lane)), charged_[lane]);
    std::size_t letters = 0;
    for (auto& [which, sent] : sends_) {
      EXPECT_EQ(owner_.count(sent.transfer, true), 1);
      if (which.first == kLetters) {
        ASSERT_LT(letters, listener_.letters.size());
        EXPECT_TRUE(listener_.letters[letters++].bytes == sent.memory);
        continue;
      }
      auto& receive = receives_.at(which);
      const int arrived = owner_.count(receive.transfer, true), withdrawn = owner_.count(receive.transfer, false);
      ASSERT_EQ(arrived + withdrawn, 1);
      EXPECT_TRUE(receive.memory == (arrived == 1 ? sent.memory : Bytes(sent.memory.size())));
    }
    EXPECT_EQ(letters, listener_.letters.size());
  }

  Rng rng_;
  const std::uint64_t window_;
  Owner owner_;
  Recorder listener_;
  NoAnswers answers_;
  bool listens_ = false;
  Outbox out_;
  Inbox in_;
  std::vector<Link> links_;
  std::map<Tag, std::uint64_t> sent_, posted_;
  std::map<std::pair<Tag, std::uint64_t>, Sent> sends_, receives_;
  std::array<std::uint64_t, 2> under_way_{}, charged_{}, told_{};
};

TEST(InboxAndOutbox, DeliverEveryByteOnceAndInOrderWhateverTheInterleaving) {
  for (std::uint64_t seed = 0; seed < test::fuzz_seeds(1500); ++seed) {
    ASSERT_NO_FATAL_FAILURE(Traffic(seed).run()) << "seed " << seed;
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace slipstream
