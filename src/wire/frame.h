// SPDX-License-Identifier: Apache-2.0
//
// Frame: what travels on a mesh connection. A head of 48 bytes, then `length` bytes. A message of the mesh is one or
// several data frames: long ones are cut into pieces, so that an urgent message never waits behind a long one and
// several connections can share the bytes of one message. Pieces are cut at multiples of kPieceBytes; only the last is
// shorter.
//
//   0      4   5     6     7      8       12    16       24      32       40       48
//   | SLPW | v | kind | lane | 0 | epoch | tag | number | total | offset | length |
//
// All integers are little-endian. unpack() checks every field before anything is allocated or believed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace slipstream {

struct FrameHead {
  enum class Kind : std::uint8_t {
    kData = 1,  // a piece of a message
    kCredit,    // `number` bytes of this lane were taken in so far: the sender may send more
    kBeat,      // a sign of life
    kFailure,   // the job cannot go on; payload: why
    kBye,       // the sender leaves in good order
    kJoin,      // to the rendezvous; payload: who joins and where it listens
    kRoster,    // from the rendezvous; payload: where everybody listens
    kKnock,     // from the rendezvous of an elastic job: somebody waits to join
    kHolds,     // to the rendezvous of an elastic job: the sender holds the training from now on
  };
  static constexpr std::size_t kBytes = 48;
  static constexpr std::size_t kPieceBytes = 64 << 10;  // longest payload of a data frame
  static constexpr std::size_t kTextBytes = 256 << 10;  // longest text
  static constexpr std::uint64_t kMessageBytes = std::uint64_t{1} << 40;
  static constexpr int kLanes = 2;

  Kind kind = Kind::kBeat;
  std::uint8_t lane = 0;  // 0: urgent, 1: background
  std::uint32_t epoch = 0;
  std::uint32_t tag = 0;
  std::uint64_t number = 0;  // data: number of the message among those to this peer with this tag
  std::uint64_t total = 0;   // data: bytes of the whole message
  std::uint64_t offset = 0;  // data: where this piece begins in it
  std::uint64_t length = 0;  // bytes that follow

  using Bytes = std::array<std::byte, kBytes>;
  Bytes pack() const;
  // Throws FabricError naming the field that makes no sense, or an epoch other than this one.
  static FrameHead unpack(const Bytes& bytes, std::uint32_t epoch);

  bool operator==(const FrameHead&) const = default;
};

}  // namespace slipstream
