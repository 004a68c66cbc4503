// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <vector>

namespace slipstream {
namespace {

std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 0) {
  return hash_bytes(std::as_bytes(std::span(text)), seed);
}

TEST(Hash, IsXxh3AsPublished) {
  EXPECT_EQ(hash_text(""), 0x2D06800538D394C2U);
  EXPECT_EQ(hash_text("a"), 0xE6C632B61E964E1FU);
  EXPECT_EQ(hash_text("abc"), 0x78AF5F94892F3950U);
}

TEST(Hash, SeesEveryBitOfEveryByte) {
  std::vector<std::byte> bytes(300);
  std::set<std::uint64_t> seen = {hash_bytes(bytes)};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= std::byte{1} << bit;
      EXPECT_TRUE(seen.insert(hash_bytes(bytes)).second) << "byte " << i << " bit " << bit;
      bytes[i] ^= std::byte{1} << bit;
    }
  }
}

TEST(Hash, DependsOnTheSeedAndOnTheLength) {
  EXPECT_NE(hash_text("abc", 1), hash_text("abc", 2));
  EXPECT_NE(hash_text(std::string_view("\0", 1)), hash_text(std::string_view("\0\0", 2)));
}

TEST(Hash, PieceByPieceEqualsTheWhole) {
  std::vector<std::byte> bytes(5000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 >> 3);
  for (const std::size_t piece : {1U, 7U, 256U, 4999U, 6000U}) {
    Hasher hasher;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      hasher.add(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
    EXPECT_EQ(hasher.value(), hash_bytes(bytes)) << "in pieces of " << piece;
  }
  EXPECT_EQ(Hasher().value(), hash_bytes({}));
}

}  // namespace
}  // namespace slipstream
