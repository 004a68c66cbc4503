// SPDX-License-Identifier: Apache-2.0
//
// Safetensors: named arrays in a file that Python, Rust and C++ read alike. Eight bytes (the header's length,
// little-endian), a JSON header (name → dtype, shape, data_offsets), then the data without gaps.
//
// A reader trusts nothing: lengths, offsets, shapes and types are checked against each other and against the file's
// size before memory is taken for them. What does not fit is a DataError with the file and the byte where it was found.
// The whole file is read at once; it is for state that fits into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace slipstream {

enum class Dtype { kF64, kF32, kF16, kBf16, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool };

std::string to_text(Dtype dtype);   // as files have it: "F32"
std::size_t bytes_of(Dtype dtype);  // of one element

// A named array whose memory is somebody else's.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;  // empty: one element
  std::span<const std::byte> data;
};

// What a file came to, for whoever wants to check it later.
struct FileSum {
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;  // hash_bytes of the whole file
  bool operator==(const FileSum&) const = default;
};

// Writes the file as AtomicFile does. Names must differ and sizes must fit (else Error: our bug); tensors of larger
// elements come first, so that all lie aligned. `notes` become the file's __metadata__.
FileSum write_safetensors(const std::filesystem::path& path, std::vector<TensorView> tensors,
                          const std::map<std::string, std::string>& notes = {});

class SafetensorsFile {
 public:
  // Reads and checks everything. With `expected` also the file's size, before anything else is read, and its hash.
  explicit SafetensorsFile(const std::filesystem::path& path, const FileSum* expected = nullptr);

  const std::vector<TensorView>& tensors() const { return tensors_; }  // by offset
  const std::map<std::string, std::string>& notes() const { return notes_; }
  FileSum sum() const { return sum_; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::string> notes_;
  FileSum sum_;
};

}  // namespace slipstream
