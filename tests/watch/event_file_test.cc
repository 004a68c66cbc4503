// SPDX-License-Identifier: Apache-2.0
#include "watch/event_file.h"

#include <gtest/gtest.h>

#include <set>

#include "task/files.h"

namespace slipstream {
namespace {

using test::TempDir;
namespace fs = std::filesystem;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

std::string content_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The events of a file; the checksums must be right.
std::vector<std::string> events_of(std::string bytes) {
  std::vector<std::string> events;
  while (!bytes.empty()) {
    const std::size_t length = little_endian(std::string_view(bytes).substr(0, 8));
    const std::string event = bytes.substr(12, length);
    EXPECT_EQ(bytes.substr(0, 16 + length), event_record(event));
    events.push_back(event);
    bytes.erase(0, 16 + length);
  }
  return events;
}

// The check values of RFC 3720, appendix B.4, and the usual one.
TEST(Crc32c, HasTheValuesOfTheStandard) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending.push_back(c);
  EXPECT_EQ(crc32c(ascending), 0x46DD794EU);
}

TEST(Varint, HasSevenBitsAByte) {
  const auto bytes = [](std::uint64_t value) {
    std::string made;
    put_varint(made, value);
    return hex(made);
  };
  EXPECT_EQ(bytes(0), "00");
  EXPECT_EQ(bytes(127), "7f");
  EXPECT_EQ(bytes(128), "8001");
  EXPECT_EQ(bytes(300), "ac02");
  EXPECT_EQ(bytes(UINT64_MAX), "ffffffffffffffffff01");
}

// Masked: rotated right by 15 bits, plus 0xa282ead8. The empty event's length is eight zeros, whose crc32c is 8c28b28a.
TEST(EventRecord, HasLengthAndMaskedChecksums) {
  const auto masked = [](std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8U; };
  EXPECT_EQ(crc32c(std::string(8, '\0')), 0x8C28B28AU);
  EXPECT_EQ(hex(event_record("")),
            "0000000000000000"
            "29039807"
            "d8ea82a2");
  const std::string record = event_record("abc");
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(little_endian(std::string_view(record).substr(8, 4)), masked(crc32c(record.substr(0, 8))));
  EXPECT_EQ(record.substr(12, 3), "abc");
  EXPECT_EQ(little_endian(std::string_view(record).substr(15)), masked(crc32c("abc")));
}

TEST(EventFile, HoldsItsVersionTheStartAndScalars) {
  const TempDir files;
  const std::string folder = files.path() / "tb";
  const EventFile::Scalar values[] = {{"a", 1.5}, {"b/c", -2}};
  EventFile(folder, 7).scalars(300, values);
  ASSERT_EQ(files_in(folder).size(), 1U);
  const auto events = events_of(content_of(folder + "/" + *files_in(folder).begin()));
  ASSERT_EQ(events.size(), 3U);
  // Behind the time (9 bytes): step, then what the event is.
  EXPECT_EQ(hex(events[0].substr(9)),
            "1000"
            "1a0d" +
                hex("brain.Event:2"));
  EXPECT_EQ(hex(events[1].substr(9)),
            "1007"
            "3a02"
            "0801")
      << "a session starts at step 7";
  EXPECT_EQ(hex(events[2].substr(9)),
            "10ac02"
            "2a16"
            "0a08"
            "0a0161"
            "150000c03f"
            "0a0a"
            "0a03622f63"
            "15000000c0");
}

TEST(EventFile, HoldsATextAsATensorOfOneString) {
  const TempDir files;
  const std::string folder = files.path();
  EventFile(folder, 1).text(1, "t", "hi");
  const auto events = events_of(content_of(folder + "/" + *files_in(folder).begin()));
  EXPECT_EQ(hex(events.at(2).substr(9)),
            "1001"
            "2a1f"
            "0a1d"
            "0a0174"
            "420c"
            "0807"
            "1204"
            "1202"
            "0801"
            "4202"
            "6869"
            "4a0a"
            "0a06"
            "0a04"
            "74657874"
            "2002");
}

TEST(EventFile, OfARunThatGoesOnComesAfterTheOthers) {
  const TempDir files;
  files.write("notes.txt", "mine");
  files.write("events.out.tfevents.99999999998.host.1", "");
  EventFile(files.path(), 12);
  EXPECT_EQ(files_in(files.path()).size(), 3U);
  EXPECT_TRUE(files_in(files.path()).rbegin()->starts_with("notes.txt"));
  EXPECT_TRUE((++files_in(files.path()).begin())->starts_with("events.out.tfevents.99999999999."));
}

TEST(EventFile, OfARunFromTheStartReplacesTheOthers) {
  const TempDir files;
  files.write("notes.txt", "mine");
  files.write("events.out.tfevents.99999999998.host.1", "");
  EventFile(files.path(), 0);
  EXPECT_EQ(files_in(files.path()).size(), 2U);
  EXPECT_FALSE(files_in(files.path()).contains("events.out.tfevents.99999999998.host.1"));
}

TEST(EventFile, WhatCannotBeWrittenIsAConfigError) {
  const TempDir files;
  const fs::path file = files.write("file", "");
  EXPECT_THROW(EventFile(file / "tb", 0), ConfigError);
}

}  // namespace
}  // namespace slipstream
