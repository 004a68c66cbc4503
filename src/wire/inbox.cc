// SPDX-License-Identifier: Apache-2.0
#include "wire/inbox.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cstring>

namespace slipstream {
namespace {

constexpr std::size_t kSpareBuffers = 64;
constexpr std::uint64_t kPooledBytes = 16 << 10;  // smaller pieces have memory of their own size
constexpr std::uint64_t kMaxAhead = 1 << 20;      // messages under one tag that are not over

}  // namespace

Inbox::Buffer Inbox::buffer(std::uint64_t bytes) {
  if (bytes <= kPooledBytes) return std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (spare_.empty()) return std::make_unique_for_overwrite<std::byte[]>(FrameHead::kPieceBytes);
  Buffer memory = std::move(spare_.back());
  spare_.pop_back();
  return memory;
}

Inbox::Subject& Inbox::subject_of(Tag tag) {
  const auto [found, fresh] = subjects_.try_emplace(tag);
  if (fresh) {
    found->second.tag = tag;
    found->second.listener = listener_of_(tag);
  }
  return found->second;
}

Inbox::Message& Inbox::message_of(Subject& subject, std::uint64_t number) {
  if (number < subject.first || number - subject.first >= kMaxAhead) {
    fail<FabricError>("a frame is refused: message {} of tag {} where {} comes next", number, subject.tag,
                      subject.first);
  }
  if (number - subject.first >= subject.slots.size()) {  // grow, keeping every message at its place
    std::size_t size = std::max<std::size_t>(8, subject.slots.size());
    while (number - subject.first >= size) size *= 2;
    std::vector<std::unique_ptr<Message>> slots(size);
    for (std::uint64_t n = subject.first; n < subject.first + subject.slots.size(); ++n) {
      slots[n % size] = std::move(subject.slots[n % subject.slots.size()]);
    }
    for (auto& slot : slots) {
      if (!slot) slot = std::make_unique<Message>();
    }
    subject.slots = std::move(slots);
  }
  return *subject.slots[number % subject.slots.size()];
}

void Inbox::require_size(const Parts& into, std::uint64_t total, Tag tag) const {
  if (into.bytes() == total) return;
  fail<FabricError>("{} bytes came where {} are received (tag {}); do all ranks run the same steps?", total,
                    into.bytes(), tag);
}

void Inbox::post(Transfer& transfer) {
  Subject& subject = subject_of(transfer.tag);
  Message& message = message_of(subject, transfer.number);
  check(!message.known && !message.thrown_away, "message {} of tag {} is received twice", transfer.number,
        transfer.tag);
  if (message.begun) require_size(transfer.parts, message.total, transfer.tag);
  message.receive = &transfer;
  message.into = transfer.parts;
  message.known = true;
  ++posted_;
  if (!message.begun) return;
  settle_pieces(message, lane_of(transfer.tag));
  if (message.arrived == message.total) finish(subject, message);
}

void Inbox::withdraw(Transfer& transfer) {
  Subject& subject = subject_of(transfer.tag);
  if (transfer.number < subject.first) return;
  Message& message = message_of(subject, transfer.number);
  if (message.receive != &transfer) return;  // it has ended
  message.receive = nullptr;
  message.known = false;
  message.thrown_away = true;
  --posted_;
  transfer.owner->ended(transfer, false);
}

void Inbox::listener_changed(Tag tag) {
  const auto found = subjects_.find(tag);
  if (found == subjects_.end()) return;
  Subject& subject = found->second;
  subject.listener = listener_of_(tag);
  if (subject.listener == nullptr) return;
  for (std::uint64_t n = subject.first; n < subject.first + subject.slots.size(); ++n) {
    Message& message = message_of(subject, n);
    for (Piece& piece : message.pieces) {
      if (piece.offset != 0 || !piece.whole) continue;
      if (piece.length < kLetterHeadBytes) fail<FabricError>("a message is refused: its head is too short");
      std::memcpy(message.letter.data(), piece.memory.get(), kLetterHeadBytes);
      know_letter(subject, message);
      break;
    }
    if (message.known) settle_pieces(message, lane_of(tag));
  }
  if (!subject.slots.empty()) hear(subject);
}

void Inbox::begins(const FrameHead& head) {
  if (lane_of(head.tag) != head.lane) fail<FabricError>("a frame is refused: its tag belongs to the other lane");
  Lane& lane = lanes_[head.lane];
  if (lane.received - lane.taken + charge_of(head.length) > window_) {
    fail<FabricError>("a frame is refused: more bytes are under way than the window of {} allows", window_);
  }
  Subject& subject = subject_of(head.tag);
  Message& message = message_of(subject, head.number);
  if (!message.begun) {
    if (message.known) require_size(message.into, head.total, head.tag);
    if (subject.listener != nullptr && head.total < kLetterHeadBytes) {
      fail<FabricError>("a message of {} bytes is refused: it is too short for a head", head.total);
    }
    if (subject.listener != nullptr && head.offset == 0 && head.length < kLetterHeadBytes) {
      fail<FabricError>("a message is refused: its head is cut in two");
    }
    message.begun = true;
    message.total = head.total;
  }
  if (message.total != head.total) fail<FabricError>("a frame is refused: its message changes its size");
  if (message.claimed + head.length > message.total)
    fail<FabricError>("a frame is refused: its bytes were here before");
  message.claimed += head.length;
  lane.received += charge_of(head.length);
}

std::span<std::byte> Inbox::memory(const FrameHead& head, std::uint64_t at) {
  Subject& subject = subject_of(head.tag);
  Message& message = message_of(subject, head.number);
  const bool kept = std::any_of(message.pieces.begin(), message.pieces.end(),
                                [&](const Piece& piece) { return piece.offset == head.offset; });
  if (subject.listener != nullptr && head.offset == 0 && !message.known && !kept) {
    if (at < kLetterHeadBytes) return std::span(message.letter).subspan(at);
    know_letter(subject, message);
  }
  for (Piece& piece : message.pieces) {
    if (piece.offset == head.offset) return {piece.memory.get() + at, piece.length - at};
  }
  if (message.known) return message.into.at(head.offset + at, head.length - at);
  message.pieces.push_back({head.offset, head.length, buffer(head.length), false});
  kept_bytes_ += head.length;
  return {message.pieces.back().memory.get() + at, head.length - at};
}

// The head of a letter is there: may it come?
void Inbox::know_letter(Subject& subject, Message& message) {
  const std::uint64_t bytes = message.total - kLetterHeadBytes;
  subject.listener->begins(peer_, subject.tag, message.letter, bytes);
  if (message.body_capacity < bytes) {
    message.body = std::make_unique_for_overwrite<std::byte[]>(bytes);
    message.body_capacity = bytes;
  }
  message.into.ranges = {std::span<std::byte>(message.letter), {message.body.get(), bytes}};
  message.known = true;
}

// Kept pieces that are whole go where they belong, now that this is known.
void Inbox::settle_pieces(Message& message, int lane) {
  for (Piece& piece : message.pieces) {
    if (!piece.whole) continue;
    for (std::uint64_t done = 0; message.known && done < piece.length;) {
      const auto to = message.into.at(piece.offset + done, piece.length - done);
      std::memcpy(to.data(), piece.memory.get() + done, to.size());
      done += to.size();
    }
    lanes_[static_cast<std::size_t>(lane)].taken += charge_of(piece.length);
    kept_bytes_ -= piece.length;
    if (piece.length > kPooledBytes && spare_.size() < kSpareBuffers) spare_.push_back(std::move(piece.memory));
    piece.memory.reset();
  }
  std::erase_if(message.pieces, [](const Piece& piece) { return !piece.memory; });
}

void Inbox::arrived(const FrameHead& head) {
  Subject& subject = subject_of(head.tag);
  Message& message = message_of(subject, head.number);
  message.arrived += head.length;
  const auto kept = std::find_if(message.pieces.begin(), message.pieces.end(),
                                 [&](const Piece& piece) { return piece.offset == head.offset; });
  if (subject.listener != nullptr && head.offset == 0 && !message.known) {  // no body, or kept before the listener came
    if (kept != message.pieces.end()) std::memcpy(message.letter.data(), kept->memory.get(), kLetterHeadBytes);
    know_letter(subject, message);
  }
  if (kept == message.pieces.end()) {
    lanes_[head.lane].taken += charge_of(head.length);
  } else {
    kept->whole = true;
  }
  if (message.known || message.thrown_away) settle_pieces(message, head.lane);
  if (message.receive != nullptr) message.receive->moved.store(message.arrived, std::memory_order_relaxed);
  if (message.arrived < message.total) return;
  if (subject.listener != nullptr) return hear(subject);
  if (message.known || message.thrown_away) finish(subject, message);
}

void Inbox::finish(Subject& subject, Message& message) {
  Transfer* receive = std::exchange(message.receive, nullptr);
  message.over = true;
  drop_front(subject);
  if (receive == nullptr) return;
  --posted_;
  receive->owner->ended(*receive, true);
}

void Inbox::drop_front(Subject& subject) {
  while (!subject.slots.empty()) {
    Message& front = *subject.slots[subject.first % subject.slots.size()];
    if (!front.over) return;
    Buffer body = std::move(front.body);
    const std::uint64_t capacity = front.body_capacity;
    std::vector<Piece> pieces = std::move(front.pieces);
    pieces.clear();
    front = {};
    front.body = std::move(body);  // memory that the next one uses again
    front.body_capacity = capacity;
    front.pieces = std::move(pieces);
    ++subject.first;
  }
}

// Hands a listener what is there, in the order in which it was sent.
void Inbox::hear(Subject& subject) {
  for (;;) {
    Message& next = *subject.slots[subject.first % subject.slots.size()];
    if (!next.begun || next.arrived < next.total) return;
    subject.listener->arrived(peer_, subject.tag, next.letter, next.into.ranges[1], answers_);
    next.over = true;
    drop_front(subject);
  }
}

std::vector<Transfer*> Inbox::abandon() {
  std::vector<Transfer*> all;
  for (auto& [tag, subject] : subjects_) {
    for (auto& message : subject.slots) {
      if (message && message->receive != nullptr) all.push_back(message->receive);
    }
  }
  subjects_.clear();
  posted_ = 0;
  return all;
}

}  // namespace slipstream
