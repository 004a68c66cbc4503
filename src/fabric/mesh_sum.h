// SPDX-License-Identifier: Apache-2.0
//
// Sums over the mesh, in rank order, so that the result is the same bits everywhere and from run to run.
//
// MeshExchange: everybody sends everything to everybody, one delay. With values it is a short sum, without values a
// gather.
//
// PairSum: for two ranks. Each sends the other everything, in chunks, and adds a chunk once the other's has come and
// its own has left: one delay, and as many bytes as by halves.
//
// MeshSum: rank r owns the r-th share of the vector. Everybody sends each owner its share, in chunks; the owner adds a
// chunk once all parts of it have come and sends the result to all: two delays, 2 (P-1)/P of the bytes each way.
// Receives are posted for a few chunks ahead only, so the memory for what others send is small whatever the vector's
// size. With 16 bits, values are rounded once, added as floats, and the result is rounded once more.
//
// The mesh's I/O thread does the additions, as chunks come in.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstdint>
#include <vector>

#include "fabric/pending.h"

namespace slipstream {

// Tags of the mesh's own messages; strategies use smaller ones.
inline constexpr Tag kGatherTag = 0x40000001, kShortSumTag = 0x40000002, kReduceTag = 0x40000003,
                     kSpreadTag = 0x40000004, kPairTag = 0x40000005;

// Numbers of an operation's first messages to and from each rank, for each of its tags.
struct MessageNumbers {
  std::vector<std::uint64_t> send, receive;  // by rank
};

class MeshExchange final : public Pending {
 public:
  // A gather.
  MeshExchange(std::shared_ptr<MeshCore> mesh, int size, std::span<const std::byte> mine, std::span<std::byte> all,
               const MessageNumbers& numbers);
  // A sum.
  MeshExchange(std::shared_ptr<MeshCore> mesh, int size, std::span<float> values, Wire wire,
               const MessageNumbers& numbers);
  ~MeshExchange() override { settle(); }

 private:
  void exchange(int size, std::span<const std::byte> mine, std::span<std::byte> all, Tag tag,
                const MessageNumbers& numbers);
  bool advance(Transfer& transfer) override;

  std::span<float> values_;  // empty: a gather
  Wire wire_ = Wire::kFp32;
  std::size_t left_ = 0;  // transfers; I/O thread only
  std::vector<std::byte> all_, mine_;
};

// For PairSum and MeshSum.
inline constexpr std::size_t kSumChunk = 32 << 10;  // values
inline constexpr std::size_t kSumAhead = 8;         // chunks whose receives are posted

class PairSum final : public Pending {
 public:
  static std::uint64_t messages(std::size_t count) { return (count + kSumChunk - 1) / kSumChunk; }

  // The numbers of the first messages to the other rank and from it.
  PairSum(std::shared_ptr<MeshCore> mesh, std::span<float> values, Wire wire, std::uint64_t send,
          std::uint64_t receive);
  ~PairSum() override { settle(); }

 private:
  std::span<float> chunk(std::size_t c) const;
  std::span<std::byte> outgoing(std::size_t c);  // the values themselves, or their 16-bit form
  std::span<std::byte> incoming(std::size_t c);
  MeshCommand receive(std::size_t c);
  void add_up(std::size_t c);
  bool advance(Transfer& transfer) override;

  const int rank_;
  const std::span<float> values_;
  const Wire wire_;
  const std::size_t chunks_;
  const std::uint64_t first_received_;
  std::vector<std::uint16_t> halves_;  // what leaves, with 16 bits
  std::vector<std::byte> scratch_;     // what comes, by slot
  std::vector<float> total_;           // of one chunk, with 16 bits
  std::vector<int> missing_;           // by chunk: transfers that have not ended; I/O thread only
  std::size_t left_ = 0;               // chunks; I/O thread only
};

class MeshSum final : public Pending {
 public:
  // How many messages go to the owner of each share.
  static std::vector<std::uint64_t> messages(std::size_t count, int size);

  MeshSum(std::shared_ptr<MeshCore> mesh, int size, std::span<float> values, Wire wire, const MessageNumbers& reduce,
          const MessageNumbers& spread);
  ~MeshSum() override { settle(); }

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  Range chunk(int owner, std::size_t c) const;
  std::span<std::byte> memory(Range range);  // as on the wire: the values themselves, or their 16-bit form
  std::span<std::byte> scratch(std::size_t c, int from, std::size_t count);
  void post(std::size_t c, std::vector<MeshCommand>& commands);
  void add_up(std::size_t c);
  bool advance(Transfer& transfer) override;

  const int rank_, size_;
  const std::span<float> values_;
  const Wire wire_;
  const std::size_t share_;
  const std::size_t width_;            // bytes of a value on the wire
  std::vector<std::uint16_t> halves_;  // the vector in 16 bits
  std::vector<std::byte> scratch_;     // by slot and rank
  std::vector<float> total_;           // of one chunk
  std::vector<std::size_t> chunks_;    // by owner
  std::vector<std::size_t> first_;     // by rank: its first transfer
  std::vector<int> missing_;           // by own chunk: contributions that have not come
  const MessageNumbers reduce_, spread_;
  std::size_t left_ = 0;  // transfers that have not ended; I/O thread only
};

}  // namespace slipstream
