// SPDX-License-Identifier: Apache-2.0
//
// Reader of CIFAR-10's binary version: files of records, each one byte of label (0 to 9) and 3 * 32 * 32 bytes of
// pixels (all red, all green, all blue; rows from the top). There is no header; a file is right if its size is a
// multiple of the record's 3073 bytes and its labels are in range. Gzipped files are read too. CIFAR-100 is not.
#pragma once

#include <filesystem>
#include <vector>

#include "task/image_set.h"

namespace slipstream {

// One set from one or more batch files, in their order.
ImageSet read_cifar(const std::vector<std::filesystem::path>& batches);

}  // namespace slipstream
