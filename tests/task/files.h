// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the readers share: a directory that goes away, byte strings, gzip, and the check that an error
// names what it should.
#pragma once

#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <stdlib.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>

namespace slipstream::test {

class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "slipstream_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file;
  }

 private:
  std::filesystem::path path_;
};

inline std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift & 0xff));
  return bytes;
}

inline std::string idx_images(std::uint32_t count, std::uint32_t height, std::uint32_t width, const std::string& data) {
  return big_endian(0x803) + big_endian(count) + big_endian(height) + big_endian(width) + data;
}

inline std::string idx_labels(std::uint32_t count, const std::string& data) {
  return big_endian(0x801) + big_endian(count) + data;
}

inline std::string gzip(const std::string& plain) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, plain.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// Runs `action`, which must throw E with every one of the words in its message.
template <typename E, typename Action>
void expect_error(const Action& action, const std::vector<std::string>& words) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const E& error) {
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << "no '" << word << "' in: " << error.what();
    }
  }
}

}  // namespace slipstream::test
