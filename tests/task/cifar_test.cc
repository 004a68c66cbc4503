// SPDX-License-Identifier: Apache-2.0
#include "task/cifar.h"

#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;
using test::TempDir;

// A record whose pixels are red, green and blue planes of one value each.
std::string record(char label, char red, char green, char blue) {
  return label + std::string(1024, red) + std::string(1024, green) + std::string(1024, blue);
}

void write_all(const TempDir& dir, const std::string& below) {
  for (char i = 1; i <= 5; ++i) {
    dir.write(below + "data_batch_" + std::to_string(int{i}) + ".bin", record(i, i, 0, 0) + record(0, i, i, i));
  }
  dir.write(below + "test_batch.bin", record(7, 1, 2, 3));
}

TEST(Cifar, ReadsRecordsInOrderAsPlanes) {
  const TempDir dir;
  const ImageSet set =
      read_cifar({dir.write("a", record(4, 10, 20, 30) + record(9, 1, 2, 3)), dir.write("b", record(0, 7, 8, 9))});
  EXPECT_EQ(set.count, 3);
  EXPECT_EQ(set.channels, 3);
  EXPECT_EQ(set.height, 32);
  EXPECT_EQ(set.width, 32);
  EXPECT_EQ(set.classes, 10);
  EXPECT_EQ(set.labels, (std::vector<std::uint8_t>{4, 9, 0}));
  ASSERT_EQ(set.pixels.size(), 3u * 3072);
  EXPECT_EQ(set.pixels[1023], 10);
  EXPECT_EQ(set.pixels[1024], 20);
  EXPECT_EQ(set.pixels[3071], 30);
  EXPECT_EQ(set.pixels[3072], 1);
  EXPECT_EQ(set.pixels.back(), 9);
}

TEST(Cifar, ABrokenRecordIsAnErrorWithTheOffset) {
  const TempDir dir;
  const auto short_by_one = dir.write("short", record(1, 1, 1, 1) + record(2, 2, 2, 2).substr(1));
  expect_error<DataError>([&] { read_cifar({short_by_one}); }, {"short", "truncated", "3072 bytes", "byte 3073"});
  const auto one_more = dir.write("long", record(1, 1, 1, 1) + "x");
  expect_error<DataError>([&] { read_cifar({one_more}); }, {"long", "byte 3073"});
  expect_error<DataError>([&] { read_cifar({dir.write("none", "")}); }, {"none", "empty"});
}

TEST(Cifar, LabelsAboveNineAreAnErrorWithTheOffset) {
  const TempDir dir;
  const auto path = dir.write("labels", record(9, 1, 1, 1) + record(10, 2, 2, 2));
  expect_error<DataError>([&] { read_cifar({path}); }, {"labels", "byte 3073", "label 10"});
}

TEST(Cifar, IsFoundInADirectoryAndOneBelow) {
  for (const char* below : {"", "cifar-10-batches-bin/"}) {
    const TempDir dir;
    write_all(dir, below);
    const ImageData data = load_images(dir.path());
    EXPECT_EQ(data.train.labels, (std::vector<std::uint8_t>{1, 0, 2, 0, 3, 0, 4, 0, 5, 0}));
    EXPECT_EQ(data.test.labels, (std::vector<std::uint8_t>{7}));
  }
}

TEST(Cifar, NamesTheMissingBatch) {
  const TempDir dir;
  write_all(dir, "");
  std::filesystem::remove(dir.path() / "data_batch_3.bin");
  expect_error<DataError>([&] { load_images(dir.path()); }, {"data_batch_3.bin is not here"});
}

}  // namespace
}  // namespace slipstream
