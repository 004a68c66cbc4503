// SPDX-License-Identifier: Apache-2.0
//
// Reader of IDX, the format of MNIST, Fashion-MNIST, KMNIST and their like: a magic number, the dimensions, the bytes.
//
//   images  00 00 08 03 | count | height | width | count * height * width pixels
//   labels  00 00 08 01 | count | count labels              (numbers: 4 bytes, big end first)
//
// Plain or gzipped. Only the two shapes above are read: no other element types, no other numbers of dimensions.
#pragma once

#include <filesystem>

#include "task/image_set.h"

namespace slipstream {

// One set from its two files, of one channel. With `classes` given (the train set's), labels must be below it.
// Otherwise there are ten, or more if the labels name further classes without a gap: so a stray label is an error, not
// a class.
ImageSet read_idx(const std::filesystem::path& images, const std::filesystem::path& labels, std::int64_t classes = 0);

}  // namespace slipstream
