// SPDX-License-Identifier: Apache-2.0
#include "wire/outbox.h"

#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;
using Kind = FrameHead::Kind;

constexpr std::uint32_t kEpoch = 3;
constexpr std::uint64_t kPiece = FrameHead::kPieceBytes;

struct Owner final : TransferOwner {
  void ended(Transfer& transfer, bool arrived) override { ends.emplace_back(&transfer, arrived); }
  std::vector<std::pair<Transfer*, bool>> ends;
};

// A message with memory of its own.
struct Sent {
  Sent(Owner& owner, Tag tag, std::uint64_t number, std::size_t bytes, std::size_t cut = 0) : memory(bytes) {
    transfer.tag = tag;
    transfer.number = number;
    transfer.owner = &owner;
    transfer.parts.ranges = {std::span(memory).first(cut), std::span(memory).subspan(cut)};
  }
  std::vector<std::byte> memory;
  Transfer transfer;
};

// Takes the next frame, which must be one.
OutFrame next(Outbox& out) {
  OutFrame frame;
  EXPECT_TRUE(out.next(frame));
  EXPECT_EQ(FrameHead::unpack(frame.head.pack(), kEpoch), frame.head);
  EXPECT_EQ(frame.head.length, frame.pieces[0].size() + frame.pieces[1].size());
  return frame;
}
OutFrame leave(Outbox& out) {
  const OutFrame frame = next(out);
  out.left(frame);
  return frame;
}
bool blocked(Outbox& out) {
  OutFrame frame;
  return !out.next(frame);
}

TEST(Outbox, AnEmptyOneHasNothingToSend) {
  Outbox out(kEpoch, 10 * kPiece);
  EXPECT_TRUE(out.empty());
  EXPECT_TRUE(blocked(out));
  EXPECT_EQ(out.first(), nullptr);
}

TEST(Outbox, AMessageIsCutIntoPiecesThatCoverItOnceAndInOrder) {
  for (const std::size_t bytes : {std::size_t{1}, kPiece - 1, kPiece, kPiece + 1, 3 * kPiece + 5}) {
    for (const std::size_t cut : {std::size_t{0}, bytes / 2, bytes}) {
      Owner owner;
      Outbox out(kEpoch, 10 * kPiece);
      Sent sent(owner, 7, 4, bytes, cut);
      out.add(sent.transfer);
      const std::byte* at = sent.memory.data();
      for (std::uint64_t offset = 0; offset < bytes;) {
        EXPECT_TRUE(owner.ends.empty());
        EXPECT_EQ(out.first(), &sent.transfer);
        const OutFrame frame = leave(out);
        EXPECT_EQ(frame.head, (FrameHead{Kind::kData, 0, kEpoch, 7, 4, bytes, offset, frame.head.length}));
        for (const auto& piece : frame.pieces) {
          if (!piece.empty()) {
            EXPECT_EQ(piece.data(), at);
          }
          at += piece.size();
        }
        offset += frame.head.length;
      }
      EXPECT_EQ(at, sent.memory.data() + bytes);
      EXPECT_EQ(owner.ends, (std::vector<std::pair<Transfer*, bool>>{{&sent.transfer, true}}));
      EXPECT_EQ(sent.transfer.moved.load(), bytes);
      EXPECT_TRUE(out.empty());
    }
  }
}

TEST(Outbox, AnUrgentMessageOvertakesABackgroundOneBetweenItsPieces) {
  Owner owner;
  Outbox out(kEpoch, 10 * kPiece);
  Sent slow(owner, kBackground | 1, 0, 3 * kPiece), quick(owner, 1, 0, 10);
  out.add(slow.transfer);
  EXPECT_EQ(leave(out).head.lane, 1);
  out.add(quick.transfer);
  EXPECT_EQ(leave(out).head.lane, 0);
  EXPECT_EQ(leave(out).head.offset, kPiece);
  EXPECT_EQ(leave(out).head.offset, 2 * kPiece);
  EXPECT_EQ(owner.ends.size(), 2U);
}

TEST(Outbox, MessagesOfALaneLeaveInTheOrderInWhichTheyWereAdded) {
  Owner owner;
  Outbox out(kEpoch, 10 * kPiece);
  Sent a(owner, 5, 0, kPiece + 1), b(owner, 4, 0, 1), c(owner, 5, 1, 1);
  for (Sent* one : {&a, &b, &c}) out.add(one->transfer);
  EXPECT_EQ(leave(out).cookie, &a.transfer);
  EXPECT_EQ(leave(out).cookie, &a.transfer);
  EXPECT_EQ(leave(out).cookie, &b.transfer);
  EXPECT_EQ(leave(out).cookie, &c.transfer);
}

TEST(Outbox, ControlFramesGoBeforeDataAndABeatAndAByeAfterIt) {
  Owner owner;
  Outbox out(kEpoch, 10 * kPiece);
  Sent sent(owner, 1, 0, kPiece + 1);
  out.add(sent.transfer);
  out.beat();
  out.bye();
  out.tell_taken(1, 77);
  out.text(Kind::kFailure, "why");
  const OutFrame text = leave(out);
  EXPECT_EQ(text.head.kind, Kind::kFailure);
  EXPECT_EQ(text.head.length, 3U);
  const OutFrame credit = leave(out);
  EXPECT_EQ(credit.head.kind, Kind::kCredit);
  EXPECT_EQ(credit.head.lane, 1);
  EXPECT_EQ(credit.head.number, 77U);
  EXPECT_EQ(leave(out).head.kind, Kind::kData);
  EXPECT_EQ(leave(out).head.kind, Kind::kData);
  EXPECT_EQ(leave(out).head.kind, Kind::kBeat);
  EXPECT_FALSE(out.empty());
  EXPECT_EQ(leave(out).head.kind, Kind::kBye);
  EXPECT_TRUE(out.empty());
  EXPECT_TRUE(blocked(out));
}

TEST(Outbox, AByeWaitsUntilEveryPieceHasLeftItsLink) {
  Owner owner;
  Outbox out(kEpoch, 10 * kPiece);
  Sent sent(owner, 1, 0, 2 * kPiece);
  out.add(sent.transfer);
  out.bye();
  const OutFrame first = next(out), second = next(out);  // two links
  EXPECT_TRUE(blocked(out));
  out.left(second);
  EXPECT_TRUE(blocked(out));
  EXPECT_TRUE(owner.ends.empty());
  out.left(first);
  EXPECT_EQ(owner.ends.size(), 1U);
  EXPECT_EQ(leave(out).head.kind, Kind::kBye);
}

TEST(Outbox, NeverHasMoreThanTheWindowUnderWayAndGoesOnWithCredit) {
  constexpr std::uint64_t kWindow = 3 * kPiece + kPiece / 2;
  Owner owner;
  Outbox out(kEpoch, kWindow);
  Sent sent(owner, 1, 0, 20 * kPiece + 9);
  out.add(sent.transfer);
  std::uint64_t under_way = 0, taken = 0, pieces = 0;
  while (owner.ends.empty()) {
    OutFrame frame;
    if (out.next(frame)) {
      under_way += charge_of(frame.head.length);
      ASSERT_LE(under_way, kWindow);
      out.left(frame);
      ++pieces;
    } else {
      ASSERT_GT(under_way + kPiece, kWindow) << "it waits for credit that it has";
      const std::uint64_t some = std::min<std::uint64_t>(under_way, kPiece + pieces % 3);
      under_way -= some;
      out.credit(0, taken += some);
    }
  }
  EXPECT_EQ(pieces, 21U);
}

TEST(Outbox, TinyMessagesCountForWhatTheyCostTheReceiver) {
  Owner owner;
  Outbox out(kEpoch, 1024);
  std::vector<std::unique_ptr<Sent>> all;
  for (std::uint64_t n = 0; n < 5; ++n) out.add(all.emplace_back(std::make_unique<Sent>(owner, 1, n, 1))->transfer);
  for (int i = 0; i < 4; ++i) leave(out);
  EXPECT_TRUE(blocked(out));
  out.credit(0, 255);
  EXPECT_TRUE(blocked(out));
  out.credit(0, 256);
  EXPECT_EQ(leave(out).head.number, 4U);
}

TEST(Outbox, ALaneWithoutCreditDoesNotBlockTheOther) {
  for (const Tag full : {kUrgent, kBackground}) {
    Owner owner;
    Outbox out(kEpoch, 2 * kPiece);
    Sent large(owner, full | 1, 0, 9 * kPiece), small(owner, (full ^ kBackground) | 1, 0, 10);
    out.add(large.transfer);
    leave(out);
    leave(out);
    EXPECT_TRUE(blocked(out));
    out.add(small.transfer);
    EXPECT_EQ(leave(out).cookie, &small.transfer);
    out.credit(lane_of(small.transfer.tag), 256);  // the other lane's credit is not ours
    EXPECT_TRUE(blocked(out));
    out.beat();
    EXPECT_EQ(leave(out).head.kind, Kind::kBeat);
  }
}

TEST(Outbox, CreditForWhatWasNotSentIsRefusedAndAnOlderOneChangesNothing) {
  Owner owner;
  Outbox out(kEpoch, 2 * kPiece);
  Sent sent(owner, 1, 0, 9 * kPiece);
  out.add(sent.transfer);
  leave(out);
  leave(out);
  expect_error<FabricError>([&] { out.credit(0, 2 * kPiece + 1); },
                            {"refused", "credit for 131073 bytes where 131072"});
  expect_error<FabricError>([&] { out.credit(1, 1); }, {"credit for 1 bytes where 0"});
  out.credit(0, 2 * kPiece);
  out.credit(0, kPiece);  // came over another connection, late
  leave(out);
  leave(out);
  EXPECT_TRUE(blocked(out));
}

TEST(Outbox, TextsLeaveOneAfterTheOtherAndAreCutToWhatAFrameTakes) {
  Outbox out(kEpoch, 0);
  out.text(Kind::kJoin, "first");
  out.text(Kind::kFailure, std::string(FrameHead::kTextBytes + 100, 'x'));
  out.text(Kind::kRoster, "");
  const OutFrame first = next(out);
  EXPECT_TRUE(blocked(out)) << "its text is still being sent by a link";
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(first.pieces[0].data()), first.pieces[0].size()), "first");
  out.left(first);
  EXPECT_EQ(leave(out).head.length, FrameHead::kTextBytes);
  EXPECT_EQ(leave(out).head.kind, Kind::kRoster);
  EXPECT_TRUE(out.empty());
}

TEST(Outbox, AbandonReturnsWhatHasNotEndedOnceAndSendsNothingOfItAnyMore) {
  Owner owner;
  Outbox out(kEpoch, 10 * kPiece);
  Sent gone(owner, 1, 0, 10), leaving(owner, 1, 1, 10), half(owner, 1, 2, 3 * kPiece),
      waiting(owner, kBackground, 0, 9);
  for (Sent* one : {&gone, &leaving, &half, &waiting}) out.add(one->transfer);
  leave(out);
  OutFrame under_way = next(out);
  leave(out);
  std::vector<Transfer*> all = out.abandon();
  std::sort(all.begin(), all.end());
  std::vector<Transfer*> want = {&leaving.transfer, &half.transfer, &waiting.transfer};
  std::sort(want.begin(), want.end());
  EXPECT_EQ(all, want);
  under_way.cookie = nullptr;  // as Link::rescue() does
  out.left(under_way);
  EXPECT_EQ(owner.ends.size(), 1U);
  EXPECT_TRUE(blocked(out));
  EXPECT_TRUE(out.empty());
  EXPECT_TRUE(out.abandon().empty());
}

}  // namespace
}  // namespace slipstream
