// SPDX-License-Identifier: Apache-2.0
#include "task/cifar.h"

#include <slipstream/base/error.h>

#include "task/file.h"

namespace slipstream {
namespace {

constexpr std::size_t kPixels = 3 * 32 * 32;
constexpr std::size_t kRecord = 1 + kPixels;

void append_batch(const std::filesystem::path& path, ImageSet& set) {
  const std::vector<std::uint8_t> bytes = read_whole_file(path);
  const std::size_t records = bytes.size() / kRecord;
  const std::size_t rest = bytes.size() % kRecord;
  if (bytes.empty()) fail<DataError>("{}: empty: no images from byte 0 on; fetch the file again", path.string());
  if (rest != 0) {
    fail<DataError>(
        "{}: truncated or not CIFAR-10: after {} records of {} bytes, {} bytes are left from byte {} on; fetch the "
        "file again",
        path.string(), records, kRecord, rest, records * kRecord);
  }
  set.pixels.reserve(set.pixels.size() + records * kPixels);
  for (std::size_t at = 0; at < bytes.size(); at += kRecord) {
    if (bytes[at] >= set.classes) {
      fail<DataError>("{}: at byte {}, label {} is out of range: CIFAR-10 has the classes 0 to 9; fetch the file again",
                      path.string(), at, bytes[at]);
    }
    set.labels.push_back(bytes[at]);
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at + 1);
    set.pixels.insert(set.pixels.end(), first, first + kPixels);
  }
}

}  // namespace

ImageSet read_cifar(const std::vector<std::filesystem::path>& batches) {
  check(!batches.empty(), "read_cifar needs at least one file");
  ImageSet set{.count = 0, .channels = 3, .height = 32, .width = 32, .classes = 10, .pixels = {}, .labels = {}};
  for (const std::filesystem::path& path : batches) append_batch(path, set);
  set.count = static_cast<std::int64_t>(set.labels.size());
  return set;
}

}  // namespace slipstream
