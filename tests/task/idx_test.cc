// SPDX-License-Identifier: Apache-2.0
#include "task/idx.h"

#include "task/files.h"

namespace slipstream {
namespace {

using test::big_endian;
using test::expect_error;
using test::gzip;
using test::idx_images;
using test::idx_labels;
using test::TempDir;

const std::string kPixels("abcdefghijkl", 12);  // two images of 2 x 3
const std::string kLabels("\x03\x09", 2);

// Reads a set from the two files' bytes.
ImageSet read(const TempDir& dir, const std::string& images, const std::string& labels, std::int64_t classes = 0) {
  return read_idx(dir.write("images", images), dir.write("labels", labels), classes);
}

TEST(Idx, ReadsImagesAndLabels) {
  const TempDir dir;
  const ImageSet set = read(dir, idx_images(2, 2, 3, kPixels), idx_labels(2, kLabels));
  EXPECT_EQ(set.count, 2);
  EXPECT_EQ(set.channels, 1);
  EXPECT_EQ(set.height, 2);
  EXPECT_EQ(set.width, 3);
  EXPECT_EQ(set.classes, 10);
  EXPECT_EQ(std::string(set.pixels.begin(), set.pixels.end()), kPixels);
  EXPECT_EQ(set.labels, (std::vector<std::uint8_t>{3, 9}));
}

TEST(Idx, ReadsGzippedFilesAlike) {
  const TempDir dir;
  const ImageSet set = read(dir, gzip(idx_images(2, 2, 3, kPixels)), gzip(idx_labels(2, kLabels)));
  EXPECT_EQ(std::string(set.pixels.begin(), set.pixels.end()), kPixels);
  EXPECT_EQ(set.labels, (std::vector<std::uint8_t>{3, 9}));
}

TEST(Idx, WrongMagicIsShown) {
  const TempDir dir;
  expect_error<DataError>([&] { read(dir, idx_labels(2, kLabels), idx_labels(2, kLabels)); },
                          {"images", "byte 0", "00000801", "00000803"});
  expect_error<DataError>([&] { read(dir, idx_images(2, 2, 3, kPixels), "<html>not found"); },
                          {"labels", "byte 0", "3c68746d", "00000801"});
}

TEST(Idx, EveryTruncationIsAnErrorWithTheOffset) {
  const TempDir dir;
  const std::string images = idx_images(2, 2, 3, kPixels);
  for (std::size_t size = 0; size < images.size(); ++size) {
    expect_error<DataError>([&] { read(dir, images.substr(0, size), idx_labels(2, kLabels)); },
                            {"images", "truncated", "byte " + std::to_string(size)});
  }
}

TEST(Idx, TrailingBytesAreAnError) {
  const TempDir dir;
  expect_error<DataError>([&] { read(dir, idx_images(2, 2, 3, kPixels + "xyz"), idx_labels(2, kLabels)); },
                          {"images", "3 trailing bytes", "byte 28"});
}

TEST(Idx, EmptySetsAndEmptyImagesAreErrors) {
  const TempDir dir;
  expect_error<DataError>([&] { read(dir, idx_images(0, 2, 3, ""), idx_labels(0, "")); }, {"images", "byte 4", "zero"});
  expect_error<DataError>([&] { read(dir, idx_images(2, 2, 0, ""), idx_labels(2, kLabels)); }, {"byte 12", "zero"});
}

TEST(Idx, HugeDimensionsAreAnErrorNotAnOverflow) {
  const TempDir dir;
  const std::uint32_t most = 0xffffffff;
  expect_error<DataError>([&] { read(dir, idx_images(most, most, most, kPixels), idx_labels(2, kLabels)); },
                          {"images"});
  expect_error<DataError>([&] { read(dir, idx_images(most, 1, 1, kPixels), idx_labels(2, kLabels)); }, {"truncated"});
}

TEST(Idx, DifferentCountsAreAnErrorThatNamesBothFiles) {
  const TempDir dir;
  expect_error<DataError>([&] { read(dir, idx_images(2, 2, 3, kPixels), idx_labels(3, std::string(3, '\1'))); },
                          {"images", "labels", "3 labels", "2 images"});
}

TEST(Idx, AStrayLabelIsAnErrorNotAClass) {
  const TempDir dir;
  const std::string images = idx_images(2, 2, 3, kPixels);
  expect_error<DataError>(
      [&] {
        read(dir, images, idx_labels(2, {'\x03', '\xc8'}));
      },
      {"byte 9", "label 200", "0 to 9"});
}

TEST(Idx, MoreThanTenClassesMustHaveNoGap) {
  const TempDir dir;
  std::string labels;
  for (char label = 0; label < 12; ++label) labels.push_back(label);
  const std::string images = idx_images(12, 1, 1, std::string(12, 'x'));
  EXPECT_EQ(read(dir, images, idx_labels(12, labels)).classes, 12);
  expect_error<DataError>([&] { read(dir, images, idx_labels(12, labels), 11); },
                          {"byte 19", "label 11", "11 classes"});
}

TEST(ImageSet, LoadsADirectoryOfIdxFilesPlainOrGzipped) {
  const TempDir dir;
  dir.write("train-images-idx3-ubyte.gz", gzip(idx_images(2, 2, 3, kPixels)));
  dir.write("train-labels-idx1-ubyte", idx_labels(2, kLabels));
  dir.write("t10k-images-idx3-ubyte", idx_images(1, 2, 3, "uvwxyz"));
  dir.write("t10k-labels-idx1-ubyte.gz", gzip(idx_labels(1, "\x01")));
  const ImageData data = load_images(dir.path());
  EXPECT_EQ(data.train.count, 2);
  EXPECT_EQ(data.test.count, 1);
  EXPECT_EQ(data.test.pixels.back(), 'z');
}

TEST(ImageSet, NamesTheMissingFile) {
  const TempDir dir;
  dir.write("train-images-idx3-ubyte", idx_images(2, 2, 3, kPixels));
  dir.write("train-labels-idx1-ubyte", idx_labels(2, kLabels));
  dir.write("t10k-labels-idx1-ubyte", idx_labels(1, "\x01"));
  expect_error<DataError>([&] { load_images(dir.path()); }, {"neither t10k-images-idx3-ubyte nor"});
}

TEST(ImageSet, TrainAndTestImagesMustHaveOneSize) {
  const TempDir dir;
  dir.write("train-images-idx3-ubyte", idx_images(2, 2, 3, kPixels));
  dir.write("train-labels-idx1-ubyte", idx_labels(2, kLabels));
  dir.write("t10k-images-idx3-ubyte", idx_images(1, 3, 2, "uvwxyz"));
  dir.write("t10k-labels-idx1-ubyte", idx_labels(1, "\x01"));
  expect_error<DataError>([&] { load_images(dir.path()); }, {"t10k-images", "3 x 2", "2 x 3"});
}

TEST(ImageSet, SaysWhatItLookedForInADirectoryWithoutImages) {
  const TempDir dir;
  expect_error<DataError>([&] { load_images(dir.path()); },
                          {"no images", "train-images-idx3-ubyte", "data_batch_1.bin"});
  expect_error<DataError>([&] { load_images(dir.path() / "none"); }, {"none", "no such directory"});
  expect_error<DataError>([&] { load_images(dir.write("file", "x")); }, {"file", "not a directory"});
}

}  // namespace
}  // namespace slipstream
