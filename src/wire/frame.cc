// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace slipstream {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

constexpr char kMagic[] = {'S', 'L', 'P', 'W'};
constexpr std::uint8_t kVersion = 1;

struct Layout {
  char magic[4];
  std::uint8_t version, kind, lane, zero;
  std::uint32_t epoch, tag;
  std::uint64_t number, total, offset, length;
};
static_assert(sizeof(Layout) == FrameHead::kBytes);

}  // namespace

FrameHead::Bytes FrameHead::pack() const {
  Layout layout{{}, kVersion, static_cast<std::uint8_t>(kind), lane, 0, epoch, tag, number, total, offset, length};
  std::memcpy(layout.magic, kMagic, sizeof kMagic);
  Bytes bytes;
  std::memcpy(bytes.data(), &layout, sizeof layout);
  return bytes;
}

FrameHead FrameHead::unpack(const Bytes& bytes, std::uint32_t epoch) {
  Layout f;
  std::memcpy(&f, bytes.data(), sizeof f);
  const auto require = [](bool holds, const char* why) {
    if (!holds) fail<FabricError>("a frame is refused: {}", why);
  };
  require(std::memcmp(f.magic, kMagic, sizeof kMagic) == 0, "it does not begin like one");
  require(f.version == kVersion, "it is of another version; do all run the same program?");
  require(f.kind >= static_cast<std::uint8_t>(Kind::kData) && f.kind <= static_cast<std::uint8_t>(Kind::kHolds),
          "there is no such kind");
  require(f.lane < kLanes && f.zero == 0, "there is no such lane");
  if (f.epoch != epoch) fail<FabricError>("a frame is refused: it is of epoch {}, this job is in {}", f.epoch, epoch);
  const auto kind = static_cast<Kind>(f.kind);
  if (kind == Kind::kData) {
    require(f.total > 0 && f.total <= kMessageBytes, "its message has an impossible size");
    require(f.length > 0 && f.length <= kPieceBytes, "its piece has an impossible size");
    require(f.offset < f.total && f.length <= f.total - f.offset, "its piece lies outside its message");
    require(f.offset % kPieceBytes == 0 && f.length == std::min<std::uint64_t>(kPieceBytes, f.total - f.offset),
            "its piece is cut elsewhere");
  } else {
    const bool has_text = kind == Kind::kFailure || kind == Kind::kJoin || kind == Kind::kRoster;
    require(f.total == 0 && f.offset == 0 && f.tag == 0, "it has fields that its kind has not");
    require(has_text ? f.length <= kTextBytes : f.length == 0, "its payload has an impossible size");
    require(kind == Kind::kCredit || f.number == 0, "it has fields that its kind has not");
  }
  return {kind, f.lane, f.epoch, f.tag, f.number, f.total, f.offset, f.length};
}

}  // namespace slipstream
