// SPDX-License-Identifier: Apache-2.0
#include "topology/table_sum.h"

#include <algorithm>

#include "base/vec.h"
#include "codec/float8.h"

namespace slipstream {
namespace {

constexpr Tag kToOwner = 0x5A;

// An owner's share of the table and of the exact values. All shares are equally long; the last ones are padded with
// zeros.
struct Share {
  Share(std::size_t cells, std::size_t exact_values, int ranks)
      : table((cells + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks)),
        exact((exact_values + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks)) {}
  std::size_t bytes() const { return float8_bytes(table.size()) + exact.size() * sizeof(float); }

  void pack(std::span<std::byte> record) const {
    float8_encode(table, record.first(float8_bytes(table.size())));
    std::ranges::copy(std::as_bytes(std::span(exact)), record.subspan(float8_bytes(table.size())).begin());
  }
  void unpack(std::span<const std::byte> record) {
    float8_decode(record.first(float8_bytes(table.size())), table);
    std::ranges::copy(record.subspan(float8_bytes(table.size())), std::as_writable_bytes(std::span(exact)).begin());
  }

  std::vector<float> table, exact;
};

std::span<float> part(std::span<float> values, int rank, std::size_t most) {
  const std::size_t first = std::min(values.size(), static_cast<std::size_t>(rank) * most);
  return values.subspan(first, std::min(most, values.size() - first));
}

void read(std::span<const float> from, std::vector<float>& to) {
  std::fill(std::ranges::copy(from, to.begin()).out, to.end(), 0.0F);
}

void write(const std::vector<float>& from, std::span<float> to) { std::copy_n(from.begin(), to.size(), to.begin()); }

}  // namespace

void TableSum::sum_whole(Fabric& net, std::span<float> table, std::span<float> exact) {
  Share mine(table.size(), exact.size(), 1);
  read(table, mine.table);
  read(exact, mine.exact);
  out_.resize(mine.bytes());
  in_.resize(mine.bytes() * static_cast<std::size_t>(net.size()));
  mine.pack(out_);
  net.gather(out_, in_).wait();
  std::fill(table.begin(), table.end(), 0.0F);
  std::fill(exact.begin(), exact.end(), 0.0F);
  for (int r = 0; r < net.size(); ++r) {
    mine.unpack(std::span(in_).subspan(static_cast<std::size_t>(r) * mine.bytes(), mine.bytes()));
    vec::add(table, mine.table);
    vec::add(exact, mine.exact);
  }
}

void TableSum::sum(Fabric& net, std::span<float> table, std::span<float> exact, Way way) {
  const int rank = net.rank(), ranks = net.size();
  if (ranks == 1 || table.size() + exact.size() == 0) return;
  if (way == Way::kEverybody) return sum_whole(net, table, exact);
  Share share(table.size(), exact.size(), ranks), total = share;
  out_.resize(share.bytes() * static_cast<std::size_t>(ranks));
  in_.resize(out_.size());
  const auto record = [&share](std::vector<std::byte>& records, int r) {
    return std::span(records).subspan(static_cast<std::size_t>(r) * share.bytes(), share.bytes());
  };
  const auto pack = [&](int owner, std::span<std::byte> out) {
    read(part(table, owner, share.table.size()), share.table);
    read(part(exact, owner, share.exact.size()), share.exact);
    share.pack(out);
    return out;
  };
  std::vector<InFlight> transfers;
  for (int i = 1; i < ranks; ++i) {  // begin with the next rank: no rank is everybody's first
    const int owner = (rank + i) % ranks, sender = (rank + ranks - i) % ranks;
    transfers.push_back(net.recv(sender, kToOwner, record(in_, sender)));
    transfers.push_back(net.send(owner, kToOwner, pack(owner, record(out_, owner))));
  }
  pack(rank, record(in_, rank));
  for (InFlight& transfer : transfers) transfer.wait();
  for (int r = 0; r < ranks; ++r) {
    share.unpack(record(in_, r));
    vec::add(total.table, share.table);
    vec::add(total.exact, share.exact);
  }
  const auto mine = record(out_, rank);
  total.pack(mine);
  net.gather(mine, in_).wait();
  for (int r = 0; r < ranks; ++r) {
    share.unpack(record(in_, r));
    write(share.table, part(table, r, share.table.size()));
    write(share.exact, part(exact, r, share.exact.size()));
  }
}

double TableSum::bytes_sent(std::size_t cells, std::size_t exact, int ranks, Way way) {
  if (cells + exact == 0) return 0;
  if (way == Way::kEverybody) return (ranks - 1.0) * static_cast<double>(Share(cells, exact, 1).bytes());
  return 2.0 * (ranks - 1) * static_cast<double>(Share(cells, exact, ranks).bytes());
}

}  // namespace slipstream
