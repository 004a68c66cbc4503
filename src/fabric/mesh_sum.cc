// SPDX-License-Identifier: Apache-2.0
#include "fabric/mesh_sum.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cstring>

#include "base/vec.h"
#include "fabric/wire.h"

namespace slipstream {
namespace {

using Kind = MeshCommand::Kind;

std::span<const float> as_floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}
std::span<const std::uint16_t> as_halves(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const std::uint16_t*>(bytes.data()), bytes.size() / sizeof(std::uint16_t)};
}
std::span<std::uint16_t> as_halves(std::span<std::byte> bytes) {
  return {reinterpret_cast<std::uint16_t*>(bytes.data()), bytes.size() / sizeof(std::uint16_t)};
}

// total = (first ? 0 : total) + what came over the wire
void add_from_wire(Wire wire, std::span<const std::byte> bytes, std::span<float> total, bool first) {
  if (wire == Wire::kFp32) {
    first ? vec::copy(total, as_floats(bytes)) : vec::add(total, as_floats(bytes));
  } else {
    first ? wire_decode(wire, as_halves(bytes), total) : wire_add(wire, as_halves(bytes), total);
  }
}

std::size_t pairs(int size) { return static_cast<std::size_t>(size - 1); }

}  // namespace

MeshExchange::MeshExchange(std::shared_ptr<MeshCore> mesh, int size, std::span<const std::byte> mine,
                           std::span<std::byte> all, const MessageNumbers& numbers)
    : Pending(std::move(mesh), fmt::format("gather of {} bytes", mine.size()), 2 * pairs(size)) {
  exchange(size, mine, all, kGatherTag, numbers);
}

MeshExchange::MeshExchange(std::shared_ptr<MeshCore> mesh, int size, std::span<float> values, Wire wire,
                           const MessageNumbers& numbers)
    : Pending(std::move(mesh), fmt::format("sum of {} floats", values.size()), 2 * pairs(size)),
      values_(values),
      wire_(wire) {
  const std::size_t bytes = values.size() * wire_width(wire);
  mine_.resize(bytes);
  all_.resize(bytes * static_cast<std::size_t>(size));
  if (wire == Wire::kFp32) {
    std::memcpy(mine_.data(), values.data(), bytes);
  } else {
    wire_encode(wire, values, as_halves(std::span(mine_)));
  }
  exchange(size, mine_, all_, kShortSumTag, numbers);
}

void MeshExchange::exchange(int size, std::span<const std::byte> mine, std::span<std::byte> all, Tag tag,
                            const MessageNumbers& numbers) {
  const int rank = mesh().rank();
  std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * rank);
  std::vector<MeshCommand> commands;
  commands.reserve(2 * pairs(size));
  std::size_t next = 0;
  for (int i = 1; i < size; ++i) {  // begin with the next rank: no rank is everybody's first
    const int peer = (rank + i) % size;
    const auto r = static_cast<std::size_t>(peer);
    set(next, peer, tag, numbers.receive[r], all.subspan(r * mine.size(), mine.size()));
    commands.push_back({Kind::kReceive, &transfer(next++)});
    set(next, peer, tag, numbers.send[r], sendable(mine));
    commands.push_back({Kind::kSend, &transfer(next++)});
  }
  left_ = commands.size();
  start(commands);
}

bool MeshExchange::advance(Transfer&) {
  if (--left_ > 0) return false;
  if (values_.empty()) return true;
  const std::size_t bytes = mine_.size();
  for (std::size_t r = 0; r * bytes < all_.size(); ++r) {
    add_from_wire(wire_, std::span(all_).subspan(r * bytes, bytes), values_, r == 0);
  }
  if (wire_ != Wire::kFp32) {
    wire_encode(wire_, values_, as_halves(std::span(mine_)));
    wire_decode(wire_, as_halves(std::span<const std::byte>(mine_)), values_);
  }
  return true;
}

// Transfers: the sends of all chunks, then their receives.
PairSum::PairSum(std::shared_ptr<MeshCore> mesh, std::span<float> values, Wire wire, std::uint64_t send,
                 std::uint64_t receive)
    : Pending(std::move(mesh), fmt::format("sum of {} floats", values.size()),
              2 * static_cast<std::size_t>(messages(values.size()))),
      rank_(this->mesh().rank()),
      values_(values),
      wire_(wire),
      chunks_(static_cast<std::size_t>(messages(values.size()))),
      first_received_(receive),
      missing_(chunks_, 2),
      left_(chunks_) {
  const std::size_t slots = std::min(kSumAhead, chunks_);
  scratch_.resize(slots * kSumChunk * wire_width(wire));
  if (wire != Wire::kFp32) {
    halves_.resize(values.size());
    wire_encode(wire, values, halves_);
    total_.resize(std::min(kSumChunk, values.size()));
  }
  std::vector<MeshCommand> commands;
  commands.reserve(chunks_ + slots);
  for (std::size_t c = 0; c < slots; ++c) commands.push_back(this->receive(c));
  for (std::size_t c = 0; c < chunks_; ++c) {
    set(c, 1 - rank_, kPairTag, send + c, outgoing(c));
    commands.push_back({Kind::kSend, &transfer(c)});
  }
  start(commands);
}

std::span<float> PairSum::chunk(std::size_t c) const {
  return values_.subspan(c * kSumChunk, std::min(kSumChunk, values_.size() - c * kSumChunk));
}

std::span<std::byte> PairSum::outgoing(std::size_t c) {
  if (wire_ == Wire::kFp32) return std::as_writable_bytes(chunk(c));
  return std::as_writable_bytes(std::span(halves_).subspan(c * kSumChunk, chunk(c).size()));
}

std::span<std::byte> PairSum::incoming(std::size_t c) {
  const std::size_t width = wire_width(wire_);
  return std::span(scratch_).subspan(c % kSumAhead * kSumChunk * width, chunk(c).size() * width);
}

MeshCommand PairSum::receive(std::size_t c) {
  set(chunks_ + c, 1 - rank_, kPairTag, first_received_ + c, incoming(c));
  return {Kind::kReceive, &transfer(chunks_ + c)};
}

void PairSum::add_up(std::size_t c) {
  if (wire_ == Wire::kFp32) return vec::add(chunk(c), as_floats(incoming(c)));  // for two, order does not matter
  const std::span<float> total = std::span(total_).first(chunk(c).size());
  add_from_wire(wire_, outgoing(c), total, true);
  add_from_wire(wire_, incoming(c), total, false);
  wire_encode(wire_, total, as_halves(outgoing(c)));
  wire_decode(wire_, as_halves(std::span<const std::byte>(outgoing(c))), chunk(c));
}

bool PairSum::advance(Transfer& transfer) {
  const std::size_t c = index_of(transfer) % chunks_;
  if (--missing_[c] > 0) return false;
  add_up(c);
  if (c + kSumAhead < chunks_) {  // its slot is free again
    const MeshCommand next = receive(c + kSumAhead);
    start(std::span(&next, 1));
  }
  return --left_ == 0;
}

std::vector<std::uint64_t> MeshSum::messages(std::size_t count, int size) {
  const std::size_t share = sum_shard(count, size);
  std::vector<std::uint64_t> chunks;
  for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r) {
    const std::size_t owned = std::min(count, (r + 1) * share) - std::min(count, r * share);
    chunks.push_back((owned + kSumChunk - 1) / kSumChunk);
  }
  return chunks;
}

// Transfers of rank r, from first_[r] on: for another owner r, c sends to it, then c receives of its results; for
// ourselves, by chunk and peer, a receive and then a send.
MeshSum::MeshSum(std::shared_ptr<MeshCore> mesh, int size, std::span<float> values, Wire wire,
                 const MessageNumbers& reduce, const MessageNumbers& spread)
    : Pending(std::move(mesh), fmt::format("sum of {} floats", values.size()),
              [&] {
                std::size_t all = 0;  // the first share is the longest
                const auto chunks = messages(values.size(), size);
                for (const auto c : chunks) all += 2 * static_cast<std::size_t>(c);
                return all + 2 * static_cast<std::size_t>(chunks[0]) * pairs(size);
              }()),
      rank_(this->mesh().rank()),
      size_(size),
      values_(values),
      wire_(wire),
      share_(sum_shard(values.size(), size)),
      width_(wire_width(wire)),
      reduce_(reduce),
      spread_(spread) {
  for (const auto c : messages(values.size(), size)) chunks_.push_back(static_cast<std::size_t>(c));
  const auto self = static_cast<std::size_t>(rank_);
  std::size_t next = 0;
  for (std::size_t r = 0; r < chunks_.size(); ++r) {
    first_.push_back(next);
    next += 2 * chunks_[r] * (r == self ? pairs(size) : 1);
  }
  left_ = next;
  if (wire != Wire::kFp32) {
    halves_.resize(values.size());
    wire_encode(wire, values, halves_);
  }
  missing_.assign(chunks_[self], size - 1);
  scratch_.resize(std::min(kSumAhead, chunks_[self]) * pairs(size) * kSumChunk * width_);
  total_.resize(std::min(kSumChunk, share_));

  std::vector<MeshCommand> commands;
  for (std::size_t c = 0; c < std::min(kSumAhead, chunks_[self]); ++c) post(c, commands);
  const std::size_t most = *std::max_element(chunks_.begin(), chunks_.end());
  for (std::size_t c = 0; c < most; ++c) {
    for (int i = 1; i < size; ++i) {
      const int owner = (rank_ + i) % size;
      const auto r = static_cast<std::size_t>(owner);
      if (c >= chunks_[r]) continue;
      const std::size_t send = first_[r] + c, receive = first_[r] + chunks_[r] + c;
      const auto bytes = memory(chunk(owner, c));
      set(receive, owner, kSpreadTag, spread_.receive[r] + c, bytes);
      set(send, owner, kReduceTag, reduce_.send[r] + c, bytes);
      commands.push_back({Kind::kReceive, &transfer(receive)});
      commands.push_back({Kind::kSend, &transfer(send)});
    }
  }
  start(commands);
}

MeshSum::Range MeshSum::chunk(int owner, std::size_t c) const {
  const std::size_t begin = static_cast<std::size_t>(owner) * share_ + c * kSumChunk;
  const std::size_t end = std::min(values_.size(), (static_cast<std::size_t>(owner) + 1) * share_);
  return {begin, std::min(begin + kSumChunk, end)};
}

std::span<std::byte> MeshSum::memory(Range range) {
  const std::size_t count = range.end - range.begin;
  if (wire_ == Wire::kFp32) return std::as_writable_bytes(values_.subspan(range.begin, count));
  return std::as_writable_bytes(std::span(halves_).subspan(range.begin, count));
}

std::span<std::byte> MeshSum::scratch(std::size_t c, int from, std::size_t count) {
  const std::size_t place = c % kSumAhead * pairs(size_) + static_cast<std::size_t>(from < rank_ ? from : from - 1);
  return std::span(scratch_).subspan(place * kSumChunk * width_, count * width_);
}

// Posts receives of what the others add to our chunk c.
void MeshSum::post(std::size_t c, std::vector<MeshCommand>& commands) {
  const auto self = static_cast<std::size_t>(rank_);
  const Range range = chunk(rank_, c);
  for (int i = 1; i < size_; ++i) {
    const int peer = (rank_ + i) % size_;
    const std::size_t t = first_[self] + 2 * (c * pairs(size_) + static_cast<std::size_t>(i - 1));
    set(t, peer, kReduceTag, reduce_.receive[static_cast<std::size_t>(peer)] + c,
        scratch(c, peer, range.end - range.begin));
    commands.push_back({Kind::kReceive, &transfer(t)});
  }
}

void MeshSum::add_up(std::size_t c) {
  const Range range = chunk(rank_, c);
  const std::size_t count = range.end - range.begin;
  const std::span<float> own = values_.subspan(range.begin, count);
  if (size_ == 2 && wire_ == Wire::kFp32) {  // for two, order does not matter
    vec::add(own, as_floats(scratch(c, 1 - rank_, count)));
  } else {
    const std::span<float> total = std::span(total_).first(count);
    for (int r = 0; r < size_; ++r) {
      add_from_wire(wire_, r == rank_ ? memory(range) : scratch(c, r, count), total, r == 0);
    }
    vec::copy(own, total);
    if (wire_ != Wire::kFp32) {
      wire_encode(wire_, own, as_halves(memory(range)));
      wire_decode(wire_, as_halves(std::span<const std::byte>(memory(range))), own);
    }
  }
}

bool MeshSum::advance(Transfer& transfer) {
  const bool complete = --left_ == 0;
  const auto self = static_cast<std::size_t>(rank_);
  const std::size_t t = index_of(transfer);
  if (transfer.tag == kSpreadTag && transfer.peer != rank_) {
    const auto r = static_cast<std::size_t>(transfer.peer);
    const bool result = t >= first_[r] && t < first_[r] + 2 * chunks_[r];  // otherwise our own result has left
    if (result && wire_ != Wire::kFp32) {
      const Range range = chunk(transfer.peer, t - first_[r] - chunks_[r]);
      wire_decode(wire_, as_halves(std::span<const std::byte>(memory(range))),
                  values_.subspan(range.begin, range.end - range.begin));
    }
    return complete;
  }
  const bool ours = t >= first_[self] && t < first_[self] + 2 * chunks_[self] * pairs(size_);
  if (!ours) return complete;  // our contribution to another rank's chunk has left
  const std::size_t c = (t - first_[self]) / 2 / pairs(size_);
  if (--missing_[c] > 0) return complete;
  add_up(c);
  std::vector<MeshCommand> commands;
  for (int i = 1; i < size_; ++i) {
    const int peer = (rank_ + i) % size_;
    const std::size_t send = first_[self] + 2 * (c * pairs(size_) + static_cast<std::size_t>(i - 1)) + 1;
    set(send, peer, kSpreadTag, spread_.send[static_cast<std::size_t>(peer)] + c, memory(chunk(rank_, c)));
    commands.push_back({Kind::kSend, &this->transfer(send)});
  }
  if (c + kSumAhead < chunks_[self]) post(c + kSumAhead, commands);
  start(commands);
  return complete;
}

}  // namespace slipstream
