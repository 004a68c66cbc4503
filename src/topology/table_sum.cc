// SPDX-License-Identifier: Apache-2.0
#include "topology/table_sum.h"

#include <algorithm>

#include "base/vec.h"
#include "codec/float8.h"

namespace slipstream {
namespace {

constexpr Tag kToOwner = 0x5A;

std::size_t share_size(std::size_t count, int ranks) {
  return (count + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
}

// The last ones may be shorter.
template <typename Float>
std::span<Float> share(std::span<Float> values, int rank, int ranks) {
  const std::size_t most = share_size(values.size(), ranks);
  const std::size_t first = std::min(values.size(), static_cast<std::size_t>(rank) * most);
  return values.subspan(first, std::min(most, values.size() - first));
}

std::span<std::byte> record(std::vector<std::byte>& records, int rank, int ranks) {
  const std::size_t bytes = records.size() / static_cast<std::size_t>(ranks);
  return std::span(records).subspan(static_cast<std::size_t>(rank) * bytes, bytes);
}

}  // namespace

void TableSum::scatter(Fabric& net, std::span<const float> values) {
  const int rank = net.rank(), ranks = net.size();
  if (ranks == 1 || values.empty()) return;
  const std::size_t most = share_size(values.size(), ranks);
  out_.resize(float8_bytes(most) * static_cast<std::size_t>(ranks));
  in_.resize(out_.size());
  const auto encoded = [&](int r, std::span<std::byte> out) {
    part_.assign(most, 0.0F);
    std::ranges::copy(share(values, r, ranks), part_.begin());
    float8_encode(part_, out);
    return out;
  };
  std::vector<InFlight> transfers;
  for (int i = 1; i < ranks; ++i) {  // each begins with its neighbour: no rank is everybody's first
    const int owner = (rank + i) % ranks, sender = (rank + ranks - i) % ranks;
    transfers.push_back(net.recv(sender, kToOwner, record(in_, sender, ranks)));
    transfers.push_back(net.send(owner, kToOwner, encoded(owner, record(out_, owner, ranks))));
  }
  encoded(rank, record(in_, rank, ranks));
  for (InFlight& transfer : transfers) transfer.wait();
  total_.assign(most, 0.0F);
  for (int r = 0; r < ranks; ++r) {
    float8_decode(record(in_, r, ranks), part_);
    vec::add(total_, part_);
  }
}

void TableSum::gather(Fabric& net, std::span<float> values) {
  const int ranks = net.size();
  if (ranks == 1 || values.empty()) return;
  const auto mine = record(out_, net.rank(), ranks);
  float8_encode(total_, mine);
  net.gather(mine, in_).wait();
  for (int r = 0; r < ranks; ++r) {
    float8_decode(record(in_, r, ranks), part_);
    const auto result = share(values, r, ranks);
    vec::copy(result, std::span<const float>(part_).first(result.size()));
  }
}

double TableSum::bytes_sent(std::size_t count, int ranks) {
  if (count == 0) return 0;
  return 2.0 * (ranks - 1) * static_cast<double>(float8_bytes(share_size(count, ranks)));
}

}  // namespace slipstream
