// SPDX-License-Identifier: Apache-2.0
#include "codec/sparse_payload.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "base/hash.h"
#include "base/rng.h"

namespace slipstream {
namespace {

namespace payload = sparse_payload;
using Bytes = std::vector<std::byte>;

constexpr ValueFormat kFormats[] = {ValueFormat::kFp32, ValueFormat::kFp16, ValueFormat::kBf16, ValueFormat::kInt8};

Sparse random_entries(std::size_t count, std::uint32_t dimension, Rng& rng) {
  Sparse entries;
  for (std::uint64_t index = 0, left = count; left > 0; --left, ++index) {
    const std::uint64_t free = dimension - index - (left - 1);  // places that leave room for those to come
    index += rng.below(std::max<std::uint64_t>(1, std::min(free, 2 * dimension / count)));
    entries.indices.push_back(static_cast<std::uint32_t>(index));
    entries.values.push_back(static_cast<float>(rng.normal()));
  }
  return entries;
}

Bytes encoded(const Sparse& entries, std::uint32_t dimension, ValueFormat format = ValueFormat::kFp32) {
  Bytes bytes;
  payload::encode(entries, dimension, format, bytes);
  return bytes;
}

// Writes the checksum that belongs to the bytes, as docs/wire-format.md defines it.
void sign(Bytes& record) {
  const std::span<const std::byte> all(record);
  const std::uint64_t checksum = hash_bytes(all.subspan(32), hash_bytes(all.first(24)));
  std::memcpy(record.data() + 24, &checksum, 8);
}

template <typename T>
Bytes with(Bytes record, std::size_t offset, T value, bool signs = true) {
  std::memcpy(record.data() + offset, &value, sizeof(value));
  if (signs) sign(record);
  return record;
}

std::string refusal(const Bytes& bytes, std::uint32_t dimension) {
  try {
    payload::decode(bytes, dimension);
  } catch (const FabricError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_refused(const Bytes& bytes, std::uint32_t dimension, const std::string& because) {
  const std::string said = refusal(bytes, dimension);
  EXPECT_NE(said.find(because), std::string::npos) << said;
}

TEST(SparsePayload, DecodesToWhatWasEncoded) {
  Rng rng(1);
  for (const ValueFormat format : kFormats) {
    for (const std::uint32_t dimension : {1U, 9U, 300U, 70'000U, 20'000'000U, 4'294'967'295U}) {
      for (std::size_t count : {0, 1, 2, 7, 8, 9, 63, 255, 256, 257, 5000}) {
        if (count > dimension) continue;
        const Sparse entries = random_entries(count, dimension, rng);
        Sparse want = entries;
        round_as_sent(want.values, format);
        Bytes bytes = encoded(entries, dimension, format);
        EXPECT_LE(bytes.size(), payload::max_bytes(count, dimension, format));
        EXPECT_EQ(payload::decode(bytes, dimension), want) << count << " of " << dimension;
        payload::pad_to(bytes, payload::max_bytes(count, dimension, format));
        EXPECT_EQ(payload::decode(bytes, dimension), want) << "padded, " << count << " of " << dimension;
      }
    }
  }
}

TEST(SparsePayload, IsLaidOutAsDrawn) {
  const Sparse entries{{1, 0x01020304}, {1.0F, -2.0F}};
  const Bytes bytes = encoded(entries, 0x0A0B0C0D);
  const unsigned char want[] = {'S', 'L', 'S', 'P', 1, 0, 0, 0, 2,    0,    0,    0,    0x0D, 0x0C, 0x0B, 0x0A,
                                48,  0,   0,   0,   0, 0, 0, 0, 0,    0,    0,    0,    0,    0,    0,    0,
                                1,   0,   0,   0,   4, 3, 2, 1, 0x00, 0x00, 0x80, 0x3F, 0x00, 0x00, 0x00, 0xC0};
  Bytes signed_want(sizeof(want));
  std::memcpy(signed_want.data(), want, sizeof(want));
  sign(signed_want);
  EXPECT_EQ(bytes, signed_want);
}

TEST(SparsePayload, SendsDifferencesWhereTheyAreSmaller) {
  Sparse entries;
  for (std::uint32_t i = 0; i < 100; ++i) {
    entries.indices.push_back(1000 * i);
    entries.values.push_back(1.0F);
  }
  // 25 control bytes; the first index is 0 and takes one byte, every other difference two.
  EXPECT_EQ(encoded(entries, 100'000).size(), 32 + 25 + 1 + 99 * 2 + 400);
  EXPECT_EQ(encoded(entries, 100'000, ValueFormat::kBf16).size(), 32 + 25 + 1 + 99 * 2 + 200);
  entries.indices.resize(8);
  entries.values.resize(8);
  for (std::uint32_t i = 0; i < 8; ++i) entries.indices[i] = i * (1U << 28) + (1U << 27);  // four bytes each
  EXPECT_EQ(encoded(entries, 0xFFFFFFFF).size(), payload::max_bytes(8, 0xFFFFFFFF, ValueFormat::kFp32));
}

TEST(SparsePayload, AddsEveryEntryScaled) {
  Rng rng(2);
  for (const ValueFormat format : kFormats) {
    const Sparse entries = random_entries(700, 10'000, rng);
    std::vector<float> want(10'000, 0.5F);
    std::vector<float> got = want;
    std::vector<float> values = entries.values;
    round_as_sent(values, format);
    for (std::size_t j = 0; j < entries.indices.size(); ++j) {
      float& sum = want[entries.indices[j]];
      sum = sum + 0.3F * values[j];
    }
    payload::add_to(encoded(entries, 10'000, format), got, 0.3F);
    EXPECT_EQ(got, want);
  }
}

TEST(SparsePayload, KeepsTheBitsOfFp32Values) {
  const Sparse entries{{3, 5, 6}, {-0.0F, 1e-42F, 70'000.0F}};
  const Sparse got = payload::decode(encoded(entries, 8), 8);
  for (std::size_t j = 0; j < 3; ++j) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(got.values[j]), std::bit_cast<std::uint32_t>(entries.values[j]));
  }
}

TEST(SparsePayload, WhatIsTooLargeFor16BitsIsTheirLargestNumber) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const auto& [format, largest] : {std::pair{ValueFormat::kFp16, 65504.0F}, {ValueFormat::kBf16, 0x1.FEp127F}}) {
    const Sparse got = payload::decode(encoded({{3, 5}, {kMost, -kMost}}, 8, format), 8);
    EXPECT_EQ(got.values, (std::vector<float>{largest, -largest})) << "the sender owes the rest";
  }
}

// A block of int8 is laid out as drawn: all scales, then all levels.
TEST(SparsePayload, Int8HasAScaleForEvery256Values) {
  Sparse entries;
  for (std::uint32_t i = 0; i < 300; ++i) {
    entries.indices.push_back(i);
    entries.values.push_back(i < 256 ? 254.0F - 2.0F * static_cast<float>(i % 128) : -0.5F);
  }
  const Bytes bytes = encoded(entries, 300, ValueFormat::kInt8);
  ASSERT_EQ(bytes.size(), 32U + 75 + 300 + 2 * 4 + 300);
  std::array<float, 2> scales;
  std::memcpy(scales.data(), bytes.data() + bytes.size() - 308, sizeof(scales));
  EXPECT_EQ(scales[0], 2.0F);
  EXPECT_EQ(scales[1], 0.5F / 127.0F);
  EXPECT_EQ(bytes[bytes.size() - 300], std::byte{127});
  EXPECT_EQ(bytes[bytes.size() - 299], std::byte{126});
  EXPECT_EQ(bytes.back(), std::byte{0x81}) << "-127";
}

TEST(SparsePayload, SaysWhatIsWrong) {
  const Bytes plain = encoded({{1, 4, 6}, {1.0F, 2.0F, 3.0F}}, 10);
  EXPECT_EQ(refusal(plain, 10), "accepted");
  expect_refused({}, 10, "truncated");
  expect_refused(Bytes(plain.begin(), plain.begin() + 31), 10, "truncated");
  expect_refused(Bytes(plain.begin(), plain.end() - 1), 10, "truncated");
  expect_refused(with(plain, 0, 'X'), 10, "bad magic");
  expect_refused(with(plain, 4, std::uint8_t{2}), 10, "version 2");
  expect_refused(with(plain, 5, std::uint8_t{4}), 10, "value format 4");
  expect_refused(with(plain, 6, std::uint8_t{2}), 10, "index format 2");
  expect_refused(with(plain, 7, std::uint8_t{1}), 10, "reserved");
  expect_refused(with(plain, 8, std::uint32_t{2}), 10, "wrong count");
  expect_refused(with(plain, 8, std::uint32_t{4}), 10, "wrong count");
  expect_refused(with(plain, 8, std::uint32_t{11}), 10, "wrong count");
  expect_refused(plain, 11, "dimension 10 where 11 was expected");
  expect_refused(with(plain, 16, std::uint64_t{31}), 10, "wrong count");
  expect_refused(with(plain, 16, ~std::uint64_t{0}), 10, "truncated");
  expect_refused(with(plain, 36, std::uint32_t{1}), 10, "out of order");
  expect_refused(with(plain, 36, std::uint32_t{7}), 10, "out of order: index 6 follows 7");
  expect_refused(with(plain, 40, std::uint32_t{10}), 10, "out of range: index 10");
  expect_refused(with(plain, 44, 5.0F, false), 10, "checksum");
  Bytes longer = plain;
  longer.push_back(std::byte{0});
  EXPECT_EQ(refusal(longer, 10), "accepted");
  longer.push_back(std::byte{1});
  expect_refused(longer, 10, "trailing bytes");

  Rng rng(3);
  const Bytes deltas = encoded(random_entries(64, 5000, rng), 5000);
  ASSERT_EQ(deltas[6], std::byte{1});
  expect_refused(with(deltas, 32, std::uint8_t{0xFF}), 5000, "wrong count");
  expect_refused(with(deltas, 8, std::uint32_t{65}), 5000, "wrong count");
}

TEST(SparsePayload, AddsNothingOfAMalformedRecord) {
  const Bytes bad = with(encoded({{1, 4, 6}, {1.0F, 2.0F, 3.0F}}, 10), 40, std::uint32_t{10});
  std::vector<float> out(10, 1.0F);
  EXPECT_THROW(payload::add_to(bad, out, 1.0F), FabricError);
  EXPECT_EQ(out, std::vector<float>(10, 1.0F));
}

TEST(SparsePayload, RefusesToEncodeWhatItCouldNotDecode) {
  Bytes out;
  EXPECT_THROW(payload::encode({{1, 1}, {1.0F, 2.0F}}, 10, ValueFormat::kFp32, out), Error);
  EXPECT_THROW(payload::encode({{2, 1}, {1.0F, 2.0F}}, 10, ValueFormat::kFp32, out), Error);
  EXPECT_THROW(payload::encode({{1, 10}, {1.0F, 2.0F}}, 10, ValueFormat::kFp32, out), Error);
  EXPECT_THROW(payload::encode({{1}, {1.0F, 2.0F}}, 10, ValueFormat::kFp32, out), Error);
  Bytes record = encoded({{1}, {1.0F}}, 10);
  EXPECT_THROW(payload::pad_to(record, 39), Error);
}

// The stream of indices is read 16 bytes at a time; a page without access behind the payload notices one too many.
TEST(SparsePayload, ReadsNothingBeyondThePayload) {
  constexpr std::size_t kPage = 4096;
  auto* const pages =
      static_cast<std::byte*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(pages), MAP_FAILED);
  ASSERT_EQ(mprotect(pages + kPage, kPage, PROT_NONE), 0);
  Rng rng(7);
  for (std::size_t count = 0; count < 100; ++count) {
    for (const ValueFormat format : kFormats) {
      const Bytes bytes = encoded(random_entries(count, 30'000, rng), 30'000, format);
      std::byte* const at = pages + kPage - bytes.size();
      std::copy(bytes.begin(), bytes.end(), at);
      EXPECT_EQ(payload::decode({at, bytes.size()}, 30'000), payload::decode(bytes, 30'000));
    }
  }
  munmap(pages, 2 * kPage);
}

struct Sample {
  std::uint32_t dimension;
  Bytes bytes;
  Sparse entries;  // as they decode
};

std::vector<Sample> samples(Rng& rng) {
  std::vector<Sample> all;
  for (const ValueFormat format : kFormats) {
    for (const std::size_t count : {0, 1, 5, 8, 40, 130}) {
      // No two of one dimension: where a splice makes a whole record of another sample, it is to be refused.
      const std::uint32_t dimension = (200U << rng.below(16)) + static_cast<std::uint32_t>(all.size());
      Bytes bytes = encoded(random_entries(count, dimension, rng), dimension, format);
      if (rng.below(2) == 0) payload::pad_to(bytes, payload::max_bytes(count, dimension, format));
      Sparse entries = payload::decode(bytes, dimension);
      all.push_back({dimension, std::move(bytes), std::move(entries)});
    }
  }
  return all;
}

// One to three damages of the kinds a wire or a bug does. The copy has no spare capacity: a sanitizer sees every read
// beyond its end.
Bytes mutate(const Bytes& original, const Bytes& other, Rng& rng) {
  Bytes bytes = original;
  for (std::uint64_t damage = 1 + rng.below(3); damage > 0; --damage) {
    const auto at = [&](const Bytes& of) { return static_cast<std::ptrdiff_t>(rng.below(of.size() + 1)); };
    switch (rng.below(5)) {
      case 0:
        bytes.resize(rng.below(bytes.size() + 1));
        break;
      case 1:
        if (!bytes.empty()) bytes[rng.below(bytes.size())] ^= static_cast<std::byte>(1U << rng.below(8));
        break;
      case 2: {  // the head of one record, the tail of another
        bytes.resize(static_cast<std::size_t>(at(bytes)));
        bytes.insert(bytes.end(), other.begin() + at(other), other.end());
        break;
      }
      case 3:
        if (!bytes.empty()) bytes[rng.below(std::min<std::size_t>(bytes.size(), 64))] = std::byte(rng.below(256));
        break;
      case 4:
        bytes.insert(bytes.begin() + at(bytes), static_cast<std::size_t>(rng.below(9)), std::byte(rng.below(256)));
    }
  }
  return {bytes.begin(), bytes.end()};
}

std::optional<Sparse> accepted(const Bytes& bytes, std::uint32_t dimension) {
  try {
    return payload::decode(bytes, dimension);
  } catch (const FabricError&) {
    return std::nullopt;
  }
}

TEST(SparsePayload, NoDamageGoesUnnoticed) {
  Rng rng(4);
  const std::vector<Sample> all = samples(rng);
  std::size_t refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    const Sample& sample = all[rng.below(all.size())];
    const Bytes bytes = mutate(sample.bytes, all[rng.below(all.size())].bytes, rng);
    const std::optional<Sparse> got = accepted(bytes, sample.dimension);
    ASSERT_TRUE(!got || *got == sample.entries) << "mutant " << i;
    refused += !got;
  }
  EXPECT_GT(refused, 100'000U);
}

// With a valid checksum the other checks stand alone: the entries may differ, but they are entries of this dimension.
TEST(SparsePayload, ForgedRecordsStayInsideTheDimension) {
  Rng rng(5);
  const std::vector<Sample> all = samples(rng);
  std::size_t decoded = 0;
  for (int i = 0; i < 100'000; ++i) {
    const Sample& sample = all[rng.below(all.size())];
    Bytes bytes = mutate(sample.bytes, all[rng.below(all.size())].bytes, rng);
    std::uint64_t record_bytes = 0;
    if (bytes.size() < 32) continue;
    std::memcpy(&record_bytes, bytes.data() + 16, 8);
    if (record_bytes < 32 || record_bytes > bytes.size()) continue;
    Bytes record(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(record_bytes));
    sign(record);
    const std::optional<Sparse> got = accepted(record, sample.dimension);
    if (!got) continue;
    ++decoded;
    ASSERT_EQ(got->indices.size(), got->values.size());
    for (std::size_t j = 0; j < got->indices.size(); ++j) {
      ASSERT_LT(got->indices[j], sample.dimension);
      ASSERT_TRUE(j == 0 || got->indices[j - 1] < got->indices[j]);
    }
  }
  EXPECT_GT(decoded, 1000U);
}

TEST(SparsePayload, RefusesRandomBytes) {
  Rng rng(6);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes(rng.below(200));
    for (std::byte& b : bytes) b = std::byte(rng.below(256));
    if (bytes.size() >= 5 && rng.below(2) == 0) std::memcpy(bytes.data(), "SLSP\1", 5);
    ASSERT_EQ(accepted(bytes, 100), std::nullopt);
  }
}

}  // namespace
}  // namespace slipstream
