// SPDX-License-Identifier: Apache-2.0
//
// A whole file as bytes. Gzip is recognised by its first two bytes, never by the name, and unpacked on the way, so that
// the readers of formats do not know about it. Every failure is a DataError with the file, the offset and the cure.
// Files are read into memory at once: this is for data sets that fit there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace slipstream {

std::vector<std::uint8_t> read_whole_file(const std::filesystem::path& path);

}  // namespace slipstream
