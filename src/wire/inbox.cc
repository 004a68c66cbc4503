// SPDX-License-Identifier: Apache-2.0
#include "wire/inbox.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cstring>

namespace slipstream {
namespace {

constexpr std::size_t kSpareBuffers = 64;
constexpr std::uint64_t kPooledBytes = 16 << 10;  // smaller pieces get memory of exactly their size
constexpr std::uint64_t kMaxAhead = 1 << 20;      // messages of one tag that are not finished
constexpr std::size_t kSpareMessages = 64;

void require_head(std::uint64_t total) {
  if (total >= kLetterHeadBytes) return;
  fail<FabricError>("a message of {} bytes is refused: it is too short for a head", total);
}

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
  const auto found = subject.messages.lower_bound(number);
  if (found != subject.messages.end() && found->first == number) return found->second;
  if (spare_messages_.empty()) return subject.messages.try_emplace(found, number)->second;
  auto node = std::move(spare_messages_.back());
  spare_messages_.pop_back();
  node.key() = number;
  return subject.messages.insert(found, std::move(node))->second;
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
  const auto found = subject.messages.find(transfer.number);
  if (found == subject.messages.end() || found->second.receive != &transfer) return;  // it has ended
  Message& message = found->second;
  message.receive = nullptr;
  message.known = false;
  message.thrown_away = true;
  --posted_;
  transfer.owner->ended(transfer, false);
}

void Inbox::listener_changed(Tag tag) {
  if (discard_) return;
  const auto found = subjects_.find(tag);
  if (found == subjects_.end()) return;
  Subject& subject = found->second;
  subject.listener = listener_of_(tag);
  if (subject.listener == nullptr) return;
  for (auto& [number, message] : subject.messages) {
    const auto first = std::find_if(message.pieces.begin(), message.pieces.end(),
                                    [](const Piece& piece) { return piece.offset == 0 && piece.whole; });
    if (first != message.pieces.end() && !message.known) know_letter(subject, message, &*first);
    if (message.known) settle_pieces(message, lane_of(tag));
  }
  hear(subject);
}

void Inbox::begins(const FrameHead& head) {
  if (discard_) return;
  if (lane_of(head.tag) != head.lane) fail<FabricError>("a frame is refused: its tag belongs to the other lane");
  Lane& lane = lanes_[head.lane];
  if (lane.received - lane.taken + charge_of(head.length) > window_) {
    fail<FabricError>("a frame is refused: more bytes are under way than the window of {} allows", window_);
  }
  Subject& subject = subject_of(head.tag);
  Message& message = message_of(subject, head.number);
  if (!message.begun) {
    if (message.known) require_size(message.into, head.total, head.tag);
    if (subject.listener != nullptr) require_head(head.total);
    message.begun = true;
    message.total = head.total;
  }
  if (message.total != head.total) fail<FabricError>("a frame is refused: its message changes its size");
  claim(message, head.offset);
  lane.received += charge_of(head.length);
}

// Notes that a piece begins; each may do so only once.
void Inbox::claim(Message& message, std::uint64_t offset) const {
  auto& ahead = message.ahead;
  const auto place = std::lower_bound(ahead.begin(), ahead.end(), offset);
  if (offset < message.claimed || (place != ahead.end() && *place == offset)) {
    fail<FabricError>("a frame is refused: its bytes were here before");
  }
  if (offset > message.claimed) {
    ahead.insert(place, offset);
    return;
  }
  std::size_t met = 0;
  for (message.claimed += FrameHead::kPieceBytes; met < ahead.size() && ahead[met] == message.claimed; ++met) {
    message.claimed += FrameHead::kPieceBytes;
  }
  ahead.erase(ahead.begin(), ahead.begin() + static_cast<std::ptrdiff_t>(met));
}

std::span<std::byte> Inbox::memory(const FrameHead& head, std::uint64_t at) {
  if (discard_) return {discard_.get() + at, head.length - at};
  Subject& subject = subject_of(head.tag);
  Message& message = message_of(subject, head.number);
  const bool kept = std::any_of(message.pieces.begin(), message.pieces.end(),
                                [&](const Piece& piece) { return piece.offset == head.offset; });
  if (subject.listener != nullptr && head.offset == 0 && !message.known && !kept) {
    if (at < kLetterHeadBytes) return std::span(message.letter).subspan(at);
    know_letter(subject, message, nullptr);
  }
  for (Piece& piece : message.pieces) {
    if (piece.offset == head.offset) return {piece.memory.get() + at, piece.length - at};
  }
  if (message.known) return message.into.at(head.offset + at, head.length - at);
  message.pieces.push_back({head.offset, head.length, buffer(head.length), false});
  kept_bytes_ += head.length;
  if (head.offset == 0) {  // the listener may have left while the head arrived
    std::memcpy(message.pieces.back().memory.get(), message.letter.data(),
                std::min<std::uint64_t>(at, kLetterHeadBytes));
  }
  return {message.pieces.back().memory.get() + at, head.length - at};
}

// The head of a letter has come, into its place or in the first piece: asks the listener whether it takes the letter.
void Inbox::know_letter(Subject& subject, Message& message, const Piece* kept) {
  require_head(message.total);  // the message may have begun before there was a listener
  if (kept != nullptr) std::memcpy(message.letter.data(), kept->memory.get(), kLetterHeadBytes);
  const std::uint64_t bytes = message.total - kLetterHeadBytes;
  subject.listener->begins(peer_, subject.tag, message.letter, bytes);
  if (message.body_capacity < bytes) {
    message.body = std::make_unique_for_overwrite<std::byte[]>(bytes);
    message.body_capacity = bytes;
  }
  message.into.ranges = {std::span<std::byte>(message.letter), {message.body.get(), bytes}};
  message.known = true;
}

// Copies kept pieces that are complete to where they belong, now that this is known.
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
  if (discard_) return;
  Subject& subject = subject_of(head.tag);
  Message& message = message_of(subject, head.number);
  message.arrived += head.length;
  const auto kept = std::find_if(message.pieces.begin(), message.pieces.end(),
                                 [&](const Piece& piece) { return piece.offset == head.offset; });
  if (subject.listener != nullptr && head.offset == 0 && !message.known) {  // no body, or kept before the listener came
    know_letter(subject, message, kept == message.pieces.end() ? nullptr : &*kept);
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
  // A letter whose listener has left waits for the next listener.
  if (message.receive != nullptr || message.thrown_away) finish(subject, message);
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
  for (auto front = subject.messages.begin();
       front != subject.messages.end() && front->first == subject.first && front->second.over;
       front = subject.messages.begin()) {
    ++subject.first;
    auto node = subject.messages.extract(front);
    if (spare_messages_.size() >= kSpareMessages) continue;
    Message& old = node.mapped();
    Message fresh;  // keeps memory for the next one
    fresh.body = std::move(old.body);
    fresh.body_capacity = old.body_capacity;
    fresh.pieces = std::move(old.pieces);
    fresh.pieces.clear();
    old = std::move(fresh);
    spare_messages_.push_back(std::move(node));
  }
}

// Hands the listener complete messages, in the order in which they were sent.
void Inbox::hear(Subject& subject) {
  while (subject.listener != nullptr) {
    const auto next = subject.messages.find(subject.first);
    if (next == subject.messages.end()) return;
    Message& message = next->second;
    if (!message.begun || message.arrived < message.total) return;
    subject.listener->arrived(peer_, subject.tag, message.letter, message.into.ranges[1], answers_);
    message.over = true;
    if (subject.listener->finished(peer_, subject.tag)) subject.listener = nullptr;
    drop_front(subject);
  }
}

const Transfer* Inbox::awaited() const {
  for (const auto& [tag, subject] : subjects_) {
    for (const auto& [number, message] : subject.messages) {
      if (message.receive != nullptr) return message.receive;
    }
  }
  return nullptr;
}

std::vector<Transfer*> Inbox::abandon() {
  std::vector<Transfer*> all;
  for (auto& [tag, subject] : subjects_) {
    for (auto& [number, message] : subject.messages) {
      if (message.receive != nullptr) all.push_back(message.receive);
    }
  }
  subjects_.clear();
  spare_messages_.clear();
  spare_.clear();
  posted_ = 0;
  kept_bytes_ = 0;
  discard_ = std::make_unique_for_overwrite<std::byte[]>(FrameHead::kPieceBytes);
  return all;
}

}  // namespace slipstream
