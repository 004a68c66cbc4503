// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.h"

#include <slipstream/base/tag.h>

#include <cstring>

#include "base/rng.h"
#include "kit/fuzz.h"
#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;
using Kind = FrameHead::Kind;

constexpr std::uint32_t kEpoch = 7;
constexpr std::uint64_t kPiece = FrameHead::kPieceBytes;

FrameHead data(std::uint64_t total, std::uint64_t offset, std::uint64_t length) {
  return {Kind::kData, 0, kEpoch, 5, 9, total, offset, length};
}
FrameHead control(Kind kind, std::uint64_t length = 0) { return {kind, 0, kEpoch, 0, 0, 0, 0, length}; }

// One of each kind, with the smallest and the largest values that may be.
std::vector<FrameHead> valid_heads() {
  constexpr std::uint64_t kMost = FrameHead::kMessageBytes;
  std::vector<FrameHead> heads = {data(1, 0, 1), data(kPiece, 0, kPiece), data(kPiece + 3, kPiece, 3),
                                  data(kMost, 0, kPiece), data(kMost, kMost - kPiece, kPiece)};
  heads.back().number = ~std::uint64_t{0};
  heads.back().tag = ~std::uint32_t{0};
  heads.back().lane = 1;
  for (const Kind kind : {Kind::kBeat, Kind::kBye, Kind::kCredit}) heads.push_back(control(kind));
  heads.back().number = ~std::uint64_t{0};
  heads.back().lane = 1;
  for (const Kind kind : {Kind::kFailure, Kind::kJoin, Kind::kRoster}) {
    heads.push_back(control(kind));
    heads.push_back(control(kind, FrameHead::kTextBytes));
  }
  return heads;
}

// What any accepted head must be, whoever made it. Written from frame.h, not from frame.cc.
void expect_possible(const FrameHead& head) {
  ASSERT_EQ(head.epoch, kEpoch);
  ASSERT_LT(head.lane, FrameHead::kLanes);
  switch (head.kind) {
    case Kind::kData:
      ASSERT_GT(head.length, 0U);
      ASSERT_LE(head.total, FrameHead::kMessageBytes);
      ASSERT_EQ(head.offset % kPiece, 0U);
      ASSERT_LT(head.offset, head.total);
      ASSERT_EQ(head.length, std::min(kPiece, head.total - head.offset));
      return;
    case Kind::kFailure:
    case Kind::kJoin:
    case Kind::kRoster:
      ASSERT_LE(head.length, FrameHead::kTextBytes);
      ASSERT_EQ(head.number, 0U);
      break;
    case Kind::kBeat:
    case Kind::kBye:
    case Kind::kKnock:
    case Kind::kHolds:
      ASSERT_EQ(head.number, 0U);
      [[fallthrough]];
    case Kind::kCredit:
      ASSERT_EQ(head.length, 0U);
      break;
    default:
      FAIL() << "there is no such kind";
  }
  ASSERT_EQ(head.tag, 0U);
  ASSERT_EQ(head.total, 0U);
  ASSERT_EQ(head.offset, 0U);
}

TEST(Frame, WhatIsPackedIsUnpackedEqual) {
  for (const FrameHead& head : valid_heads()) {
    EXPECT_EQ(FrameHead::unpack(head.pack(), kEpoch), head);
    ASSERT_NO_FATAL_FAILURE(expect_possible(head));
  }
}

TEST(Frame, LiesOnTheWireAsItsDrawingSays) {
  const FrameHead head{Kind::kData, 1, 0x04030201, 0x87654321, 2, 3, 4, 5};
  const auto bytes = head.pack();
  EXPECT_EQ(std::memcmp(bytes.data(), "SLPW\x01\x01\x01\x00\x01\x02\x03\x04\x21\x43\x65\x87\x02\0\0\0\0\0\0\0", 24), 0);
  for (const auto& [at, value] : {std::pair{24, 3}, {32, 4}, {40, 5}}) {
    EXPECT_EQ(bytes[static_cast<std::size_t>(at)], static_cast<std::byte>(value));
  }
}

TEST(Frame, EveryFieldIsRefusedByName) {
  const auto refuses = [](FrameHead head, const char* why) {
    expect_error<FabricError>([&] { FrameHead::unpack(head.pack(), kEpoch); }, {"a frame is refused", why});
  };
  const auto refuses_byte = [](std::size_t at, int value, const char* why) {
    auto bytes = data(10, 0, 10).pack();
    bytes[at] = static_cast<std::byte>(value);
    expect_error<FabricError>([&] { FrameHead::unpack(bytes, kEpoch); }, {"a frame is refused", why});
  };
  for (const std::size_t at : {0, 1, 2, 3}) refuses_byte(at, 'x', "does not begin like one");
  refuses_byte(4, 2, "another version");
  refuses_byte(5, 0, "no such kind");
  refuses_byte(5, 10, "no such kind");
  refuses_byte(6, 2, "no such lane");
  refuses_byte(7, 1, "no such lane");
  refuses_byte(8, 8, "it is of epoch 8, this job is in 7");
  refuses(data(0, 0, 0), "its message has an impossible size");
  refuses(data(FrameHead::kMessageBytes + 1, 0, kPiece), "its message has an impossible size");
  refuses(data(10, 0, 0), "its piece has an impossible size");
  refuses(data(kPiece + 1, 0, kPiece + 1), "its piece has an impossible size");
  refuses(data(10, 0, 11), "its piece lies outside its message");
  refuses(data(kPiece + 10, kPiece, 11), "its piece lies outside its message");
  refuses(data(10, kPiece, 1), "its piece lies outside its message");
  refuses(data(10, ~std::uint64_t{0}, 1), "its piece lies outside its message");
  refuses(data(10, 0, 9), "its piece is cut elsewhere");
  refuses(data(10, 1, 9), "its piece is cut elsewhere");
  refuses(data(kPiece + 10, kPiece - 1, 11), "its piece is cut elsewhere");
  for (const Kind kind : {Kind::kBeat, Kind::kBye, Kind::kCredit, Kind::kFailure, Kind::kJoin, Kind::kRoster}) {
    const bool has_text = kind == Kind::kFailure || kind == Kind::kJoin || kind == Kind::kRoster;
    refuses(control(kind, has_text ? FrameHead::kTextBytes + 1 : 1), "its payload has an impossible size");
    FrameHead head = control(kind);
    head.tag = 1;
    refuses(head, "fields that its kind has not");
    head = control(kind);
    head.total = 1;
    refuses(head, "fields that its kind has not");
    head = control(kind);
    head.offset = 1;
    refuses(head, "fields that its kind has not");
    head = control(kind);
    head.number = 1;
    if (kind != Kind::kCredit) refuses(head, "fields that its kind has not");
  }
}

// Valid heads with some bytes changed, and bytes at random behind a valid beginning: accepted is only what can be, and
// it is what the bytes say.
TEST(Frame, WhatCannotBeIsNeverAccepted) {
  const auto heads = valid_heads();
  std::uint64_t accepted = 0;
  const std::uint64_t inputs = test::fuzz_seeds(200'000);
  for (std::uint64_t seed = 0; seed < inputs; ++seed) {
    Rng rng(seed);
    auto bytes = heads[rng.below(heads.size())].pack();
    if (rng.below(8) == 0) {
      for (std::size_t i = rng.below(9); i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(rng.next());
    }
    for (std::uint64_t changes = rng.below(4); changes > 0; --changes) {
      std::byte& one = bytes[rng.below(bytes.size())];
      one = rng.below(2) == 0 ? static_cast<std::byte>(rng.next()) : one ^ std::byte{1} << rng.below(8);
    }
    FrameHead head;
    try {
      head = FrameHead::unpack(bytes, kEpoch);
    } catch (const FabricError&) {
      continue;
    }
    ++accepted;
    ASSERT_NO_FATAL_FAILURE(expect_possible(head)) << "seed " << seed;
    ASSERT_EQ(head.pack(), bytes) << "seed " << seed;
  }
  EXPECT_GT(accepted, inputs / 20);
  EXPECT_LT(accepted, inputs);
}

}  // namespace
}  // namespace slipstream
