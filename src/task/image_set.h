// SPDX-License-Identifier: Apache-2.0
//
// ImageSet: labelled images in memory, as bytes, in the order of the files: pixels[((i * channels + c) * height + y) *
// width + x]. Invariant: pixels and labels have exactly `count` images (at least one), every label is below `classes`.
// It does not normalise, shuffle or augment; that is the task's business.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace slipstream {

struct ImageSet {
  std::int64_t count = 0;
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t classes = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;

  std::int64_t pixels_per_image() const { return channels * height * width; }
};

// A train and a test set of equal shape and classes.
struct ImageData {
  ImageSet train;
  ImageSet test;
};

// Finds out what a directory holds, and reads it: the four IDX files of MNIST and its relatives (with or without .gz),
// or CIFAR-10's binary batches, in the directory itself or below it in cifar-10-batches-bin. DataError when it is
// neither, when a file is missing, or when one is not what it should be.
ImageData load_images(const std::filesystem::path& directory);

}  // namespace slipstream
