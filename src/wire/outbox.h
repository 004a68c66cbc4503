// SPDX-License-Identifier: Apache-2.0
//
// Outbox: what waits to be sent to one peer, and in which order. Texts and credits go first, then pieces of the urgent
// lane's messages, then the background lane's; within a lane, first come, first served; a beat only if nothing else is
// sent. A lane has at most `window` bytes under way that the peer has not taken in (credits), so its memory stays
// bounded; a lane without credit does not block the other. Several links may draw from one outbox. I/O thread only.
#pragma once

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "wire/inbox.h"
#include "wire/link.h"
#include "wire/transfer.h"

namespace slipstream {

class Outbox {
 public:
  Outbox(std::uint32_t epoch, std::uint64_t window) : epoch_(epoch), window_(window) {}

  void add(Transfer& transfer) { lanes_[static_cast<std::size_t>(lane_of(transfer.tag))].queue.push_back(&transfer); }

  // Control frames. The outbox keeps a text until it has left.
  void text(FrameHead::Kind kind, std::string text);  // kFailure, kJoin, kRoster
  void beat() { beat_ = true; }
  void bye() { bye_ = true; }
  void tell_taken(int lane, std::uint64_t bytes);  // gives the peer credit

  // The peer has taken in this many bytes of a lane in all. Throws FabricError where that cannot be.
  void credit(int lane, std::uint64_t bytes);

  bool next(OutFrame& out);          // the next frame for a link; false: nothing may leave now
  void left(const OutFrame& out);    // the frame has left; with its last piece the transfer ends
  bool empty() const;                // nothing waits; links may still be sending pieces
  const Transfer* first() const;     // a transfer that has not left; null: none
  std::vector<Transfer*> abandon();  // all transfers that have not ended; the outbox forgets them

 private:
  struct Lane {
    std::deque<Transfer*> queue;        // not completely given to links
    std::vector<Transfer*> leaving;     // completely given to links, not completely left
    std::uint64_t sent = 0, taken = 0;  // charged bytes: given to links; taken in by the peer
    std::uint64_t to_tell = 0;          // our own count of taken bytes, to be sent to the peer
    bool tell = false;
  };

  const std::uint32_t epoch_;
  const std::uint64_t window_;
  std::array<Lane, FrameHead::kLanes> lanes_;
  std::deque<std::pair<FrameHead::Kind, std::string>> texts_;
  std::string text_leaving_;
  bool beat_ = false, bye_ = false;
};

}  // namespace slipstream
