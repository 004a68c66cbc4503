// SPDX-License-Identifier: Apache-2.0
//
// Transfer: one message to send or receive. The caller owns it and keeps it alive, with its memory, until the mesh says
// that it has ended; the mesh allocates nothing for it.
//
// A receive is matched with the message of the same peer, tag and number. Numbers count from 0 for each peer, tag and
// direction; the caller assigns them.
#pragma once

#include <slipstream/base/tag.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace slipstream {

struct Transfer;

class TransferOwner {
 public:
  virtual ~TransferOwner() = default;
  // Called on the I/O thread: the mesh is done with it. Not `arrived`: the mesh failed, or the transfer was withdrawn.
  virtual void ended(Transfer& transfer, bool arrived) = 0;
  virtual std::string what() const { return {}; }  // for messages: "sum of 1000 floats"
};

// The memory of one message: one or two ranges, sent one after the other.
struct Parts {
  std::array<std::span<std::byte>, 2> ranges{};

  std::uint64_t bytes() const { return ranges[0].size() + ranges[1].size(); }
  // At most `count` bytes from `offset` on, as far as they lie in one range.
  std::span<std::byte> at(std::uint64_t offset, std::uint64_t count) const {
    const bool first = offset < ranges[0].size();
    const std::span<std::byte> range = first ? ranges[0] : ranges[1];
    const std::uint64_t skip = first ? offset : offset - ranges[0].size();
    return range.subspan(skip, std::min<std::uint64_t>(count, range.size() - skip));
  }
};

struct Transfer {
  int peer = 0;
  Tag tag = 0;
  std::uint64_t number = 0;
  Parts parts{};  // a send only reads them
  TransferOwner* owner = nullptr;

  std::uint64_t queued = 0;             // send: bytes given to a connection; I/O thread only
  std::atomic<std::uint64_t> moved{0};  // bytes that have left or arrived; any thread may check for progress
};

inline std::span<std::byte> sendable(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace slipstream
