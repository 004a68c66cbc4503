// SPDX-License-Identifier: Apache-2.0
#include "topology/pick_exchange.h"

#include <slipstream/base/error.h>

#include <algorithm>

#include "base/vec.h"

namespace slipstream {
namespace {

constexpr Tag kToOwner = 0x59;

// How many of the positions 0 … count - 1, dealt in turn to `ranks`, go to `rank`.
std::size_t dealt(std::size_t count, int rank, int ranks) {
  return (count + static_cast<std::size_t>(ranks - 1 - rank)) / static_cast<std::size_t>(ranks);
}

// What an owner sends to everybody: its picked sums as they are on the wire, then a bit for each of its positions. All
// records have the size of rank 0's, which has the most of both, in whole words.
struct Record {
  Record(std::size_t count, std::size_t picks, int ranks, ValueFormat format)
      : bits_at(values_bytes(dealt(picks, 0, ranks), format)),
        bytes((bits_at + (dealt(count, 0, ranks) + 7) / 8 + 3) / 4 * 4) {}
  std::size_t bits_at, bytes;
};

// The owners' picks as one list: position n of owner r is n × ranks + r.
Sparse interleaved(const std::vector<Sparse>& shares, std::size_t count) {
  const std::size_t ranks = shares.size();
  std::vector<std::size_t> at(ranks);
  Sparse all;
  for (std::size_t position = 0; position < count; ++position) {
    const std::size_t r = position % ranks;
    const Sparse& share = shares[r];
    if (at[r] == share.indices.size() || share.indices[at[r]] != position / ranks) continue;
    all.indices.push_back(static_cast<std::uint32_t>(position));
    all.values.push_back(share.values[at[r]++]);
  }
  return all;
}

// An owner's share of values that are dealt in turn.
std::vector<float> share_of(std::span<const float> values, int owner, int ranks) {
  std::vector<float> share(dealt(values.size(), owner, ranks));
  for (std::size_t n = 0; n < share.size(); ++n)
    share[n] = values[n * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(owner)];
  return share;
}

void take_share(std::span<float> values, int owner, int ranks, std::span<const float> share) {
  for (std::size_t n = 0; n < share.size(); ++n)
    values[n * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(owner)] = share[n];
}

}  // namespace

Sparse pick_by_shares(std::span<const float> sums, std::size_t picks, int ranks, TopK& select) {
  std::vector<Sparse> shares(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    select.pick(share_of(sums, r, ranks), dealt(picks, r, ranks), shares[static_cast<std::size_t>(r)]);
  }
  return interleaved(shares, sums.size());
}

Sparse PickExchange::pick_of_everybodys(Fabric& net, std::span<float> values, std::size_t picks, ValueFormat format) {
  const std::size_t size = values_bytes(values.size(), format);
  mine_.resize(size);
  all_.resize(size * static_cast<std::size_t>(net.size()));
  write_values(values, format, mine_.data());
  InFlight gathering = net.gather(mine_, all_);
  read_values(mine_.data(), format, values);
  gathering.wait();
  sums_.resize(values.size());
  std::vector<float> part(values.size());
  for (int r = 0; r < net.size(); ++r) {
    read_values(all_.data() + static_cast<std::size_t>(r) * size, format, r == 0 ? std::span(sums_) : std::span(part));
    if (r > 0) vec::add(sums_, part);
  }
  return pick_by_shares(sums_, picks, net.size(), select_);
}

Sparse PickExchange::pick(Fabric& net, std::span<float> values, std::size_t picks, ValueFormat format, Way way,
                          Sparse& lost) {
  check(picks <= values.size(), "PickExchange: {} picks of {} values", picks, values.size());
  const int rank = net.rank(), ranks = net.size();
  lost = {};
  if (values.empty()) return {};
  if (way == Way::kEverybody) return pick_of_everybodys(net, values, picks, format);
  const std::size_t mine = dealt(values.size(), rank, ranks);

  // Send each owner its values; receive everybody's values of our positions.
  std::vector<InFlight> transfers;
  const std::size_t size = values_bytes(dealt(values.size(), 0, ranks), format);  // rank 0's, for all messages
  out_.resize(static_cast<std::size_t>(ranks) * size);
  in_.resize(static_cast<std::size_t>(ranks) * size);
  const auto message = [size](std::vector<std::byte>& messages, int r) {
    return std::span(messages).subspan(static_cast<std::size_t>(r) * size, size);
  };
  const auto write = [&](int owner, std::span<std::byte> to) {
    std::vector<float> share = share_of(values, owner, ranks);
    write_values(share, format, to.data());
    read_values(to.data(), format, share);
    take_share(values, owner, ranks, share);
  };
  for (int i = 1; i < ranks; ++i) {  // begin with the next rank: no rank is everybody's first
    const int owner = (rank + i) % ranks, sender = (rank + ranks - i) % ranks;
    write(owner, message(out_, owner));
    transfers.push_back(net.recv(sender, kToOwner, message(in_, sender)));
    transfers.push_back(net.send(owner, kToOwner, message(out_, owner)));
  }
  write(rank, message(in_, rank));
  for (InFlight& transfer : transfers) transfer.wait();

  // Add them in rank order, and pick the largest sums.
  sums_.assign(mine, 0.0F);
  std::vector<float> part(mine);
  for (int r = 0; r < ranks; ++r) {
    read_values(message(in_, r).data(), format, r == 0 ? std::span(sums_) : std::span(part));
    if (r > 0) vec::add(sums_, part);
  }
  Sparse picked;
  select_.pick(sums_, dealt(picks, rank, ranks), picked);
  lost.values = picked.values;
  round_as_sent(picked.values, format);
  for (std::size_t j = 0; j < picked.indices.size(); ++j) {
    lost.indices.push_back(picked.indices[j] * static_cast<std::uint32_t>(ranks) + static_cast<std::uint32_t>(rank));
    lost.values[j] -= picked.values[j];
  }

  // Send the picks to everybody.
  const Record record(values.size(), picks, ranks, format);
  mine_.assign(record.bytes, std::byte{0});
  all_.resize(record.bytes * static_cast<std::size_t>(ranks));
  write_values(picked.values, format, mine_.data());
  for (const std::uint32_t n : picked.indices) mine_[record.bits_at + n / 8] |= std::byte{1} << n % 8;
  net.gather(mine_, all_).wait();
  std::vector<Sparse> shares(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    const std::byte* const theirs = all_.data() + static_cast<std::size_t>(r) * record.bytes;
    Sparse& share = shares[static_cast<std::size_t>(r)];
    for (std::size_t n = 0; n < dealt(values.size(), r, ranks); ++n) {
      if ((theirs[record.bits_at + n / 8] & (std::byte{1} << n % 8)) != std::byte{0}) {
        share.indices.push_back(static_cast<std::uint32_t>(n));
      }
    }
    check(share.indices.size() == dealt(picks, r, ranks), "PickExchange: rank {} picked {}, not {}", r,
          share.indices.size(), dealt(picks, r, ranks));
    share.values.resize(share.indices.size());
    read_values(theirs, format, share.values);
  }
  return interleaved(shares, values.size());
}

double PickExchange::bytes_sent(std::size_t count, std::size_t picks, int ranks, ValueFormat format, Way way) {
  if (count == 0) return 0;
  if (way == Way::kEverybody) return (ranks - 1.0) * static_cast<double>(values_bytes(count, format));
  const std::size_t bytes = values_bytes(dealt(count, 0, ranks), format) + Record(count, picks, ranks, format).bytes;
  return static_cast<double>(bytes) * (ranks - 1);
}

}  // namespace slipstream
