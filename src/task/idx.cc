// SPDX-License-Identifier: Apache-2.0
#include "task/idx.h"

#include <slipstream/base/error.h>

#include <array>
#include <bitset>
#include <limits>

#include "task/file.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;

std::uint64_t big_endian_32(const std::uint8_t* at) {
  return std::uint64_t{at[0]} << 24 | std::uint64_t{at[1]} << 16 | std::uint64_t{at[2]} << 8 | std::uint64_t{at[3]};
}

// Checks magic number and size, and leaves only the data in `bytes`.
template <std::size_t kDimensions>
std::array<std::uint64_t, kDimensions> take_header(const fs::path& path, std::vector<std::uint8_t>& bytes,
                                                   const char* what) {
  constexpr std::uint64_t kMagic = 0x0800 + kDimensions;  // 08: unsigned bytes
  constexpr std::size_t kHeader = 4 + 4 * kDimensions;
  if (bytes.size() >= 4 && big_endian_32(bytes.data()) != kMagic) {
    fail<DataError>("{}: at byte 0, magic number {:08x} where an IDX file of {} has {:08x}; name the right file",
                    path.string(), big_endian_32(bytes.data()), what, kMagic);
  }
  if (bytes.size() < kHeader) {
    fail<DataError>("{}: truncated: it ends at byte {}, inside the IDX header of {} bytes; fetch the file again",
                    path.string(), bytes.size(), kHeader);
  }
  std::array<std::uint64_t, kDimensions> sizes;
  std::uint64_t expected = 1;
  for (std::size_t d = 0; d < kDimensions; ++d) {
    sizes[d] = big_endian_32(bytes.data() + 4 + 4 * d);
    if (sizes[d] == 0) {
      fail<DataError>("{}: at byte {}, dimension {} of the {} is zero; an empty set cannot be used, name another file",
                      path.string(), 4 + 4 * d, d, what);
    }
    if (expected > std::numeric_limits<std::int64_t>::max() / sizes[d]) {
      fail<DataError>("{}: at byte {}, dimension {} of the {} is {}: more than any file holds; fetch the file again",
                      path.string(), 4 + 4 * d, d, what, sizes[d]);
    }
    expected *= sizes[d];
  }
  const std::uint64_t found = bytes.size() - kHeader;
  if (found < expected) {
    fail<DataError>(
        "{}: truncated: the header announces {} bytes of {}, the data ends at byte {} after {}; fetch the file again",
        path.string(), expected, what, bytes.size(), found);
  }
  if (found > expected) {
    fail<DataError>("{}: {} trailing bytes from byte {} on, after all {} the header announces; fetch the file again",
                    path.string(), found - expected, kHeader + expected, what);
  }
  bytes.erase(bytes.begin(), bytes.begin() + kHeader);
  return sizes;
}

// Ten, or more if the labels name further classes without a gap.
std::int64_t count_classes(const std::vector<std::uint8_t>& labels) {
  std::bitset<256> seen;
  for (const std::uint8_t label : labels) seen.set(label);
  std::int64_t classes = 10;
  while (classes < 256 && seen[static_cast<std::size_t>(classes)]) ++classes;
  return classes;
}

}  // namespace

ImageSet read_idx(const fs::path& images, const fs::path& labels, std::int64_t classes) {
  ImageSet set;
  set.pixels = read_whole_file(images);
  const auto [count, height, width] = take_header<3>(images, set.pixels, "images");
  set.labels = read_whole_file(labels);
  const auto [label_count] = take_header<1>(labels, set.labels, "labels");
  if (count != label_count) {
    fail<DataError>("{}: at byte 4, {} labels, but {} has {} images; take both files from one data set",
                    labels.string(), label_count, images.string(), count);
  }
  set.count = static_cast<std::int64_t>(count);
  set.channels = 1;
  set.height = static_cast<std::int64_t>(height);
  set.width = static_cast<std::int64_t>(width);
  set.classes = classes > 0 ? classes : count_classes(set.labels);
  for (std::size_t i = 0; i < set.labels.size(); ++i) {
    if (set.labels[i] >= set.classes) {
      fail<DataError>("{}: at byte {}, label {} is out of range: there are {} classes, 0 to {}; fetch the file again",
                      labels.string(), 8 + i, set.labels[i], set.classes, set.classes - 1);
    }
  }
  return set;
}

}  // namespace slipstream
