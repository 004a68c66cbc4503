// SPDX-License-Identifier: Apache-2.0
#include "task/file.h"

#include <slipstream/base/error.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

namespace slipstream {
namespace {

// Ends the stream whichever way we leave.
class Inflater {
 public:
  Inflater() { check(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK, "zlib could not be initialised"); }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream stream{};
};

std::vector<std::uint8_t> unpack(const std::filesystem::path& path, std::vector<std::uint8_t>& packed) {
  constexpr std::size_t kMost = std::numeric_limits<uInt>::max();  // zlib counts in 32 bits
  Inflater inflater;
  z_stream& stream = inflater.stream;
  std::vector<std::uint8_t> plain(std::max<std::size_t>(4 * packed.size(), 4096));
  std::size_t used = 0, written = 0;
  for (;;) {
    if (written == plain.size()) plain.resize(2 * plain.size());
    stream.next_in = packed.data() + used;
    stream.avail_in = static_cast<uInt>(std::min(kMost, packed.size() - used));
    stream.next_out = plain.data() + written;
    stream.avail_out = static_cast<uInt>(std::min(kMost, plain.size() - written));
    const int status = inflate(&stream, Z_NO_FLUSH);
    used = static_cast<std::size_t>(stream.next_in - packed.data());
    written = static_cast<std::size_t>(stream.next_out - plain.data());
    if (status == Z_STREAM_END) {
      if (used == packed.size()) break;
      inflateReset(&stream);             // a gzip file may hold several members, one after the other
    } else if (status == Z_BUF_ERROR) {  // there is always room for output, so input is missing
      fail<DataError>("{}: truncated: the gzip stream breaks off at byte {}; fetch the file again", path.string(),
                      used);
    } else if (status != Z_OK) {
      fail<DataError>("{}: corrupt gzip data near byte {} ({}); fetch the file again", path.string(), used,
                      stream.msg ? stream.msg : "no detail");
    }
  }
  plain.resize(written);
  return plain;
}

}  // namespace

std::vector<std::uint8_t> read_whole_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail<DataError>("{}: this is a directory; name a file in it", path.string());
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in)
    fail<DataError>("{}: cannot be opened ({}); check the name and its permissions", path.string(),
                    std::strerror(errno));
  // In chunks rather than by file size, so that pipes work too.
  std::vector<std::uint8_t> bytes;
  const auto size = std::filesystem::file_size(path, ignored);
  if (!ignored) bytes.reserve(size + 1);
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  for (;;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + kChunk);
    in.read(reinterpret_cast<char*>(bytes.data() + before), kChunk);
    bytes.resize(before + static_cast<std::size_t>(in.gcount()));
    if (!in) break;
  }
  if (in.bad()) {
    fail<DataError>("{}: reading stopped at byte {} ({}); check the disk", path.string(), bytes.size(),
                    std::strerror(errno));
  }
  if (bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) return unpack(path, bytes);
  return bytes;
}

}  // namespace slipstream
