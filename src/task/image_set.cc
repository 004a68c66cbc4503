// SPDX-License-Identifier: Apache-2.0
#include "task/image_set.h"

#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <array>
#include <string>

#include "task/cifar.h"
#include "task/idx.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 4> kIdxNames = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                                  "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
constexpr std::array<const char*, 6> kCifarNames = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                                    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

// Without exceptions: what we may not look at counts as absent.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool has_idx(const fs::path& directory, const std::string& name) {
  return is_there(directory / name) || is_there(directory / (name + ".gz"));
}

// The plain file where both exist: it is faster to read.
fs::path idx_path(const fs::path& directory, const std::string& name) {
  if (!has_idx(directory, name)) {
    fail<DataError>("{}: neither {} nor {}.gz is here; the data set has the files {}, put all of them here",
                    directory.string(), name, name, fmt::join(kIdxNames, ", "));
  }
  const fs::path plain = directory / name;
  return is_there(plain) ? plain : directory / (name + ".gz");
}

ImageData load_idx(const fs::path& directory) {
  const fs::path test_images = idx_path(directory, kIdxNames[2]), test_labels = idx_path(directory, kIdxNames[3]);
  ImageData data;
  data.train = read_idx(idx_path(directory, kIdxNames[0]), idx_path(directory, kIdxNames[1]));
  data.test = read_idx(test_images, test_labels, data.train.classes);
  if (data.test.height != data.train.height || data.test.width != data.train.width) {
    fail<DataError>(
        "{}: at byte 8, images of {} x {} pixels, but those of the train set have {} x {}; take both from one data set",
        test_images.string(), data.test.height, data.test.width, data.train.height, data.train.width);
  }
  return data;
}

ImageData load_cifar(const fs::path& directory) {
  std::vector<fs::path> paths;
  for (const char* name : kCifarNames) {
    paths.push_back(directory / name);
    if (!is_there(paths.back())) {
      fail<DataError>("{}: {} is not here; CIFAR-10's binary version has the files {}, put all of them here",
                      directory.string(), name, fmt::join(kCifarNames, ", "));
    }
  }
  const fs::path test = paths.back();
  paths.pop_back();
  return {read_cifar(paths), read_cifar({test})};
}

}  // namespace

ImageData load_images(const fs::path& directory) {
  if (!is_there(directory))
    fail<DataError>("{}: no such directory, or not readable; check the name of the data directory", directory.string());
  if (!fs::is_directory(directory)) {
    fail<DataError>("{}: not a directory; name the directory that holds the image files", directory.string());
  }
  // One file of a kind shows what was meant: then report the missing file, not an unknown kind.
  if (std::ranges::any_of(kIdxNames, [&](const char* name) { return has_idx(directory, name); })) {
    return load_idx(directory);
  }
  for (const fs::path& place : {directory, directory / "cifar-10-batches-bin"}) {
    if (std::ranges::any_of(kCifarNames, [&](const char* name) { return is_there(place / name); })) {
      return load_cifar(place);
    }
  }
  fail<DataError>("{}: no images found; expected the IDX files {} (with or without .gz) or CIFAR-10's {}",
                  directory.string(), fmt::join(kIdxNames, ", "), fmt::join(kCifarNames, ", "));
}

}  // namespace slipstream
