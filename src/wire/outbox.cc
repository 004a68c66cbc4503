// SPDX-License-Identifier: Apache-2.0
#include "wire/outbox.h"

#include <slipstream/base/error.h>

#include <algorithm>

namespace slipstream {

void Outbox::text(FrameHead::Kind kind, std::string text) {
  if (text.size() > FrameHead::kTextBytes) text.resize(FrameHead::kTextBytes);
  texts_.emplace_back(kind, std::move(text));
}

void Outbox::tell_taken(int lane, std::uint64_t bytes) {
  lanes_[static_cast<std::size_t>(lane)].to_tell = bytes;
  lanes_[static_cast<std::size_t>(lane)].tell = true;
}

void Outbox::credit(int lane, std::uint64_t bytes) {
  Lane& l = lanes_[static_cast<std::size_t>(lane)];
  if (bytes > l.sent) fail<FabricError>("a frame is refused: credit for {} bytes where {} were sent", bytes, l.sent);
  l.taken = std::max(l.taken, bytes);  // with several connections an older count may come later
}

bool Outbox::next(OutFrame& out) {
  out = {};
  out.head.epoch = epoch_;
  if (!texts_.empty() && text_leaving_.empty()) {
    out.head.kind = texts_.front().first;
    text_leaving_ = std::move(texts_.front().second);
    texts_.pop_front();
    out.head.length = text_leaving_.size();
    out.pieces[0] = std::as_bytes(std::span(text_leaving_));
    return true;
  }
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    if (!std::exchange(lanes_[l].tell, false)) continue;
    out.head.kind = FrameHead::Kind::kCredit;
    out.head.lane = static_cast<std::uint8_t>(l);
    out.head.number = lanes_[l].to_tell;
    return true;
  }
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    Lane& lane = lanes_[l];
    if (lane.queue.empty()) continue;
    Transfer& transfer = *lane.queue.front();
    const std::uint64_t total = transfer.parts.bytes();
    const std::uint64_t length = std::min<std::uint64_t>(FrameHead::kPieceBytes, total - transfer.queued);
    if (lane.sent - lane.taken + charge_of(length) > window_) continue;
    lane.sent += charge_of(length);
    out.head = {FrameHead::Kind::kData,
                static_cast<std::uint8_t>(l),
                epoch_,
                transfer.tag,
                transfer.number,
                total,
                transfer.queued,
                length};
    out.pieces[0] = transfer.parts.at(transfer.queued, length);
    if (out.pieces[0].size() < length) {
      out.pieces[1] = transfer.parts.at(transfer.queued + out.pieces[0].size(), length - out.pieces[0].size());
    }
    out.cookie = &transfer;
    transfer.queued += length;
    if (transfer.queued == total) {
      lane.queue.pop_front();
      lane.leaving.push_back(&transfer);
    }
    return true;
  }
  if (std::exchange(beat_, false)) {
    out.head.kind = FrameHead::Kind::kBeat;
    return true;
  }
  const bool drained = std::all_of(lanes_.begin(), lanes_.end(),
                                   [](const Lane& lane) { return lane.queue.empty() && lane.leaving.empty(); });
  if (bye_ && drained) {
    bye_ = false;
    out.head.kind = FrameHead::Kind::kBye;
    return true;
  }
  return false;
}

void Outbox::left(const OutFrame& out) {
  if (out.head.length > 0 && out.head.kind != FrameHead::Kind::kData) text_leaving_.clear();
  if (out.cookie == nullptr) return;
  auto& transfer = *static_cast<Transfer*>(out.cookie);
  const std::uint64_t moved = transfer.moved.load(std::memory_order_relaxed) + out.head.length;
  transfer.moved.store(moved, std::memory_order_relaxed);
  if (moved < out.head.total) return;
  std::erase(lanes_[out.head.lane].leaving, &transfer);
  transfer.owner->ended(transfer, true);
}

bool Outbox::empty() const {
  return texts_.empty() && text_leaving_.empty() && !bye_ &&
         std::all_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.queue.empty() && lane.leaving.empty(); });
}

const Transfer* Outbox::first() const {
  for (const Lane& lane : lanes_) {
    if (!lane.leaving.empty()) return lane.leaving.front();
    if (!lane.queue.empty()) return lane.queue.front();
  }
  return nullptr;
}

std::vector<Transfer*> Outbox::abandon() {
  std::vector<Transfer*> all;
  for (Lane& lane : lanes_) {
    all.insert(all.end(), lane.queue.begin(), lane.queue.end());
    all.insert(all.end(), lane.leaving.begin(), lane.leaving.end());
    lane.queue.clear();
    lane.leaving.clear();
  }
  return all;
}

}  // namespace slipstream
