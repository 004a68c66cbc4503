// SPDX-License-Identifier: Apache-2.0
#include "codec/sparse_payload.h"

#include <slipstream/base/error.h>
#include <streamvbyte.h>
#include <streamvbytedelta.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

#include "base/hash.h"

namespace slipstream::sparse_payload {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian, and so must the processor be");

enum class IndexFormat : std::uint8_t { kPlain = 0, kDeltas = 1 };

struct Header {
  std::array<char, 4> magic = {'S', 'L', 'S', 'P'};
  std::uint8_t version = 1;
  std::uint8_t value_format = 0;
  std::uint8_t index_format = 0;
  std::uint8_t reserved = 0;
  std::uint32_t count = 0;
  std::uint32_t dimension = 0;
  std::uint64_t record_bytes = 0;  // header, indices and values; without padding
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Header) == kHeaderBytes && std::has_unique_object_representations_v<Header>);

// streamvbyte moves 16 bytes at a time and so may touch this many beyond the end of its stream.
constexpr std::size_t kSlackBytes = 16;
constexpr std::size_t kMinDeltas = 8;  // fewer indices travel plain

// The seed carries the header into the checksum of the body.
std::uint64_t checksum_of(std::span<const std::byte> record) {
  const std::uint64_t of_header = hash_bytes(record.first(offsetof(Header, checksum)));
  return hash_bytes(record.subspan(kHeaderBytes), of_header);
}

// Two control bits and 1 to 4 bytes for every difference.
std::size_t delta_bytes(std::span<const std::uint32_t> indices) {
  std::size_t bytes = (indices.size() + 3) / 4;
  std::uint32_t previous = 0;
  for (const std::uint32_t index : indices) {
    const std::uint32_t delta = index - previous;
    bytes += 1U + (delta >= 1U << 8) + (delta >= 1U << 16) + (delta >= 1U << 24);
    previous = index;
  }
  return bytes;
}

// The length of a streamvbyte stream, from its control bytes, all of which must be there.
std::size_t stream_bytes(const std::byte* stream, std::size_t count) {
  std::size_t bytes = (count + 3) / 4 + count;
  for (std::size_t i = 0; i < count; ++i) bytes += std::to_integer<std::size_t>(stream[i / 4] >> i % 4 * 2) & 3U;
  return bytes;
}

void check_entries(const Sparse& entries, std::uint32_t dimension) {
  const auto& indices = entries.indices;
  check(indices.size() == entries.values.size(), "sparse_payload::encode: {} indices for {} values", indices.size(),
        entries.values.size());
  check(std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end(),
        "sparse_payload::encode: the indices do not ascend; sort them and join equal ones");
  check(indices.empty() || indices.back() < dimension, "sparse_payload::encode: index {} in a dimension of {}",
        indices.empty() ? 0 : indices.back(), dimension);
}

// A record whose every part has been checked.
struct Checked {
  std::vector<std::uint32_t> indices;
  const std::byte* values;
  ValueFormat format;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  fail<FabricError>("sparse payload: {}; see that all ranks run the same version with the same configuration",
                    fmt::format(text, std::forward<Args>(args)...));
}

Header read_header(std::span<const std::byte> payload, std::size_t expected_dimension) {
  if (payload.size() < kHeaderBytes) {
    refuse("truncated: {} bytes, but the header alone has {}", payload.size(), kHeaderBytes);
  }
  Header header;
  const Header ours;
  std::memcpy(&header, payload.data(), kHeaderBytes);
  if (header.magic != ours.magic) refuse("bad magic: the bytes do not begin with SLSP");
  if (header.version != ours.version) refuse("version {} where {} is spoken here", header.version, ours.version);
  if (header.value_format > 3) refuse("unknown value format {}", header.value_format);
  if (header.index_format > 1) refuse("unknown index format {}", header.index_format);
  if (header.reserved != 0) refuse("the reserved byte is {}, not 0", header.reserved);
  if (header.dimension != expected_dimension) {
    refuse("dimension {} where {} was expected: a message for another bucket", header.dimension, expected_dimension);
  }
  if (header.count > header.dimension) refuse("wrong count: {} entries of {}", header.count, header.dimension);
  if (header.record_bytes > payload.size()) {
    refuse("truncated: {} bytes of a record of {}", payload.size(), header.record_bytes);
  }
  return header;
}

// The indices lie between the header and the values; their format says how many bytes they must be.
std::vector<std::uint32_t> read_indices(std::span<const std::byte> payload, const Header& header, std::size_t bytes) {
  std::vector<std::uint32_t> indices(header.count);
  const std::byte* from = payload.data() + kHeaderBytes;
  if (header.index_format == static_cast<std::uint8_t>(IndexFormat::kPlain)) {
    const std::size_t needed = 4 * static_cast<std::size_t>(header.count);
    if (bytes != needed) refuse("wrong count: {} entries, but {} bytes of indices", header.count, bytes);
    if (needed > 0) std::memcpy(indices.data(), from, needed);
  } else {
    const std::size_t control_bytes = (static_cast<std::size_t>(header.count) + 3) / 4;
    if (bytes < control_bytes || bytes != stream_bytes(from, header.count)) {
      refuse("wrong count: {} entries, but a stream of indices of {} bytes", header.count, bytes);
    }
    std::vector<std::byte> padded;
    if (payload.size() - kHeaderBytes - bytes < kSlackBytes) {
      padded.assign(from, from + bytes);
      padded.resize(bytes + kSlackBytes);
      from = padded.data();
    }
    streamvbyte_delta_decode(reinterpret_cast<const std::uint8_t*>(from), indices.data(), header.count, 0);
  }
  const auto disorder = std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>());
  if (disorder != indices.end()) refuse("out of order: index {} follows {}", disorder[1], disorder[0]);
  if (!indices.empty() && indices.back() >= header.dimension) {
    refuse("out of range: index {} in a dimension of {}", indices.back(), header.dimension);
  }
  return indices;
}

Checked read(std::span<const std::byte> payload, std::size_t expected_dimension) {
  const Header header = read_header(payload, expected_dimension);
  const auto format = static_cast<ValueFormat>(header.value_format);
  const std::size_t value_bytes = values_bytes(header.count, format);
  if (header.record_bytes < kHeaderBytes + value_bytes) {
    refuse("wrong count: {} entries do not fit a record of {} bytes", header.count, header.record_bytes);
  }
  const auto record = payload.first(header.record_bytes);
  const auto padding = payload.subspan(header.record_bytes);
  if (header.checksum != checksum_of(record)) refuse("checksum: the bytes were damaged on their way");
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; })) {
    refuse("trailing bytes: what follows the record of {} bytes is not zeros", header.record_bytes);
  }
  auto indices = read_indices(payload, header, header.record_bytes - kHeaderBytes - value_bytes);
  return {std::move(indices), record.data() + record.size() - value_bytes, format};
}

}  // namespace

std::size_t max_bytes(std::size_t count, std::size_t dimension, ValueFormat format) {
  // The differences add up to less than the dimension: at most dimension / 2^8 of them need a second byte, and so on.
  const std::size_t deltas = (count + 3) / 4 + count + std::min(count, dimension >> 8) +
                             std::min(count, dimension >> 16) + std::min(count, dimension >> 24);
  const std::size_t indices = count < kMinDeltas ? 4 * count : std::min(4 * count, deltas);
  return kHeaderBytes + indices + values_bytes(count, format);
}

void encode(const Sparse& entries, std::uint32_t dimension, ValueFormat format, std::vector<std::byte>& out) {
  check_entries(entries, dimension);
  const std::size_t count = entries.indices.size();
  const std::size_t plain = sizeof(std::uint32_t) * count;
  const std::size_t deltas = count < kMinDeltas ? plain : delta_bytes(entries.indices);
  const std::size_t index_bytes = std::min(plain, deltas);
  Header header;
  header.value_format = static_cast<std::uint8_t>(format);
  header.index_format = static_cast<std::uint8_t>(deltas < plain ? IndexFormat::kDeltas : IndexFormat::kPlain);
  header.count = static_cast<std::uint32_t>(count);
  header.dimension = dimension;
  header.record_bytes = kHeaderBytes + index_bytes + values_bytes(count, format);

  out.resize(header.record_bytes + kSlackBytes);
  std::byte* const to = out.data() + kHeaderBytes;
  if (deltas < plain) {
    const std::size_t written =
        streamvbyte_delta_encode(entries.indices.data(), header.count, reinterpret_cast<std::uint8_t*>(to), 0);
    check(written == deltas, "sparse_payload::encode: streamvbyte wrote {} bytes instead of {}", written, deltas);
  } else if (plain > 0) {
    std::memcpy(to, entries.indices.data(), plain);
  }
  write_values(entries.values, format, to + index_bytes);
  out.resize(header.record_bytes);
  std::memcpy(out.data(), &header, kHeaderBytes);
  header.checksum = checksum_of(out);
  std::memcpy(out.data(), &header, kHeaderBytes);
}

void pad_to(std::vector<std::byte>& record, std::size_t bytes) {
  check(record.size() <= bytes, "sparse_payload::pad_to: a record of {} bytes does not fit {}; take max_bytes()",
        record.size(), bytes);
  record.resize(bytes);
}

Sparse decode(std::span<const std::byte> payload, std::uint32_t expected_dimension) {
  Checked record = read(payload, expected_dimension);
  Sparse out{std::move(record.indices), {}};
  out.values.resize(out.indices.size());
  read_values(record.values, record.format, out.values);
  return out;
}

void add_to(std::span<const std::byte> payload, std::span<float> out, float scale) {
  const Checked record = read(payload, out.size());
  const std::uint32_t* const indices = record.indices.data();
  each_value_block(record.values, record.indices.size(), record.format,
                   [&](std::size_t first, std::span<const float> values) {
                     for (std::size_t j = 0; j < values.size(); ++j) {
                       float& sum = out[indices[first + j]];
                       sum = sum + scale * values[j];
                     }
                   });
}

}  // namespace slipstream::sparse_payload
