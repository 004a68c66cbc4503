// SPDX-License-Identifier: Apache-2.0
#include "task/file.h"

#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;
using test::gzip;
using test::TempDir;

std::string read(const std::filesystem::path& path) {
  const auto bytes = read_whole_file(path);
  return {bytes.begin(), bytes.end()};
}

// Hard to compress, so that its gzip form is long enough to be damaged in the middle.
std::string noise(std::size_t size) {
  std::string text;
  for (std::uint32_t state = 1; text.size() < size; state = state * 1664525 + 1013904223) {
    text.push_back(static_cast<char>(state >> 24));
  }
  return text;
}

TEST(File, ReadsPlainBytesAsTheyAre) {
  const TempDir dir;
  EXPECT_EQ(read(dir.write("empty", "")), "");
  const std::string big = noise(3'000'001);
  EXPECT_EQ(read(dir.write("big", big)), big);
}

TEST(File, UnpacksGzipWhateverTheNameSays) {
  const TempDir dir;
  const std::string zeros(5'000'000, '\0');  // expands a thousandfold
  EXPECT_EQ(read(dir.write("zeros.bin", gzip(zeros))), zeros);
  EXPECT_EQ(read(dir.write("noise", gzip(noise(100'000)))), noise(100'000));
  EXPECT_EQ(read(dir.write("empty", gzip(""))), "");
}

TEST(File, ReadsAllMembersOfAGzipFile) {
  const TempDir dir;
  EXPECT_EQ(read(dir.write("two.gz", gzip("one ") + gzip("two"))), "one two");
}

TEST(File, EveryTruncationOfGzipIsAnError) {
  const TempDir dir;
  const std::string packed = gzip(noise(200));
  for (std::size_t size = 2; size < packed.size(); ++size) {
    const auto path = dir.write("cut.gz", packed.substr(0, size));
    expect_error<DataError>([&] { read_whole_file(path); }, {"cut.gz", "truncated", std::to_string(size)});
  }
}

TEST(File, DamagedGzipIsAnErrorWithTheOffset) {
  const TempDir dir;
  std::string packed = gzip(noise(10'000));
  packed[5'000] = static_cast<char>(packed[5'000] ^ 0x55);
  const auto path = dir.write("bad.gz", packed);
  expect_error<DataError>([&] { read_whole_file(path); }, {"bad.gz", "corrupt gzip", "near byte"});
  const auto trailing = dir.write("trailing.gz", gzip("fine") + "garbage");
  expect_error<DataError>([&] { read_whole_file(trailing); }, {"trailing.gz", "corrupt gzip"});
}

TEST(File, MissingFileAndDirectoryAreErrors) {
  const TempDir dir;
  expect_error<DataError>([&] { read_whole_file(dir.path() / "none"); }, {"none", "No such file"});
  expect_error<DataError>([&] { read_whole_file(dir.path()); }, {"directory"});
}

}  // namespace
}  // namespace slipstream
