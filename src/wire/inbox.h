// SPDX-License-Identifier: Apache-2.0
//
// Inbox: what comes from one peer. A piece of a message goes straight into the memory of the receive that was posted
// for it, or of the listener's letter. What arrives before its receive is kept in pieces of at most 64 KiB, as many as
// the peer has credit for, and copied when the receive is posted. I/O thread only; knows no sockets.
//
// Every frame is checked before memory is given to it. FabricError for: a message whose size changes or is not the one
// posted, a piece that came before, a number far ahead, a peer that overdraws its credit, what a listener refuses.
// Whatever a peer claims, it makes us allocate no more than a small multiple of the window.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "wire/frame.h"
#include "wire/listener.h"
#include "wire/transfer.h"

namespace slipstream {

// How many bytes a piece counts in the window: tiny messages cost memory as well.
inline std::uint64_t charge_of(std::uint64_t length) { return std::max<std::uint64_t>(length, 256); }

class Inbox {
 public:
  using ListenerOf = std::function<Listener*(Tag)>;  // null: nobody listens to that tag

  Inbox(int peer, std::uint64_t window, ListenerOf listener_of, Answers& answers)
      : peer_(peer), window_(window), listener_of_(std::move(listener_of)), answers_(answers) {}

  void post(Transfer& transfer);      // throws FabricError where the message has come with another size
  void withdraw(Transfer& transfer);  // ends it; what still comes for it is discarded

  void listener_changed(Tag tag);  // hands over what was kept for a new listener

  void begins(const FrameHead& head);                                    // a piece begins
  std::span<std::byte> memory(const FrameHead& head, std::uint64_t at);  // for its bytes from `at` on
  void arrived(const FrameHead& head);                                   // the piece is complete

  // Bytes of a lane, as charged, that need no memory of ours any more: the peer may send as many again.
  std::uint64_t taken(int lane) const { return lanes_[static_cast<std::size_t>(lane)].taken; }
  bool expects() const { return posted_ > 0; }  // a receive is posted
  const Transfer* awaited() const;              // one posted receive; null: none
  std::uint64_t kept_bytes() const { return kept_bytes_; }
  // Returns all posted receives. The inbox forgets everything, and discards what still comes.
  std::vector<Transfer*> abandon();

 private:
  using Buffer = std::unique_ptr<std::byte[]>;
  struct Piece {
    std::uint64_t offset = 0, length = 0;
    Buffer memory;
    bool whole = false;
  };
  struct Message {
    Transfer* receive = nullptr;
    Parts into{};  // memory of the receive or of the letter, once `known`
    bool known = false, begun = false, thrown_away = false, over = false;
    std::uint64_t total = 0, arrived = 0;
    std::uint64_t claimed = 0;         // all pieces before this offset have begun, …
    std::vector<std::uint64_t> ahead;  // … and those at these offsets: several connections overtake each other
    std::vector<Piece> pieces;         // those that came before `into` was known
    LetterHead letter{};
    Buffer body;  // of the letter
    std::uint64_t body_capacity = 0;
  };
  // The messages under one tag.
  struct Subject {
    Tag tag = 0;
    Listener* listener = nullptr;
    std::uint64_t first = 0;  // all messages before this one are finished
    std::map<std::uint64_t, Message> messages;
  };

  Subject& subject_of(Tag tag);
  Message& message_of(Subject& subject, std::uint64_t number);
  void claim(Message& message, std::uint64_t offset) const;
  void know_letter(Subject& subject, Message& message, const Piece* kept);
  void settle_pieces(Message& message, int lane);
  void finish(Subject& subject, Message& message);
  void hear(Subject& subject);
  void drop_front(Subject& subject);
  Buffer buffer(std::uint64_t bytes);
  void require_size(const Parts& into, std::uint64_t total, Tag tag) const;

  const int peer_;
  const std::uint64_t window_;
  const ListenerOf listener_of_;
  Answers& answers_;
  std::unordered_map<Tag, Subject> subjects_;
  struct Lane {
    std::uint64_t received = 0, taken = 0;
  };
  std::array<Lane, FrameHead::kLanes> lanes_{};
  std::size_t posted_ = 0;
  std::uint64_t kept_bytes_ = 0;
  std::vector<Buffer> spare_;  // of kPieceBytes each
  std::vector<std::map<std::uint64_t, Message>::node_type> spare_messages_;
  Buffer discard_;  // for what comes after abandon()
};

}  // namespace slipstream
