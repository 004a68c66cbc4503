// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/hash.h"
#include "checkpoint/atomic_file.h"

namespace slipstream {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "files are little-endian, and so must the processor be");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMostHeader = 100'000'000;  // as other readers have it

struct Kind {
  Dtype dtype;
  const char* name;
  std::size_t bytes;
};
constexpr std::array<Kind, 13> kKinds{{{Dtype::kF64, "F64", 8},
                                       {Dtype::kF32, "F32", 4},
                                       {Dtype::kF16, "F16", 2},
                                       {Dtype::kBf16, "BF16", 2},
                                       {Dtype::kI64, "I64", 8},
                                       {Dtype::kI32, "I32", 4},
                                       {Dtype::kI16, "I16", 2},
                                       {Dtype::kI8, "I8", 1},
                                       {Dtype::kU64, "U64", 8},
                                       {Dtype::kU32, "U32", 4},
                                       {Dtype::kU16, "U16", 2},
                                       {Dtype::kU8, "U8", 1},
                                       {Dtype::kBool, "BOOL", 1}}};

const Kind& kind_of(Dtype dtype) { return kKinds[static_cast<std::size_t>(dtype)]; }

// Bytes of so many elements; nothing where they cannot be counted in 63 bits.
std::optional<std::uint64_t> size_of(Dtype dtype, const std::vector<std::int64_t>& shape) {
  auto bytes = static_cast<std::uint64_t>(bytes_of(dtype));
  for (const std::int64_t n : shape) {
    if (n < 0) return {};
    if (n > 0 && bytes > static_cast<std::uint64_t>(INT64_MAX) / static_cast<std::uint64_t>(n)) return {};
    bytes *= static_cast<std::uint64_t>(n);
  }
  return bytes;
}

// Reads one file's header; all its errors name the file and the place.
class HeaderReader {
 public:
  HeaderReader(const std::filesystem::path& path, std::span<const std::byte> file) : path_(path), file_(file) {}

  std::vector<TensorView> tensors(std::map<std::string, std::string>& notes) const {
    const std::uint64_t header = header_bytes();
    const json root = parsed(header);
    if (!root.is_object()) refuse(kLengthBytes, "the header is not a JSON object");
    std::vector<TensorView> all;
    for (const auto& [name, value] : root.items()) {
      if (name == "__metadata__") {
        read_notes(value, notes);
        continue;
      }
      TensorView tensor = described(name, value);
      const auto [begin, end] = offsets(name, value);
      const std::uint64_t data = file_.size() - kLengthBytes - header;
      if (begin > end || end > data) {
        refuse(kLengthBytes, fmt::format("tensor '{}' lies from {} to {} of {} bytes of data", name, begin, end, data));
      }
      const auto bytes = size_of(tensor.dtype, tensor.shape);
      if (!bytes || *bytes != end - begin) {
        refuse(kLengthBytes,
               fmt::format("tensor '{}' has {} bytes, which its shape and type do not fill", name, end - begin));
      }
      tensor.data = file_.subspan(kLengthBytes + header + begin, end - begin);
      all.push_back(std::move(tensor));
    }
    std::sort(all.begin(), all.end(), [](const TensorView& a, const TensorView& b) {
      return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
    });
    std::uint64_t at = kLengthBytes + header;
    for (const TensorView& tensor : all) {
      const auto begin = static_cast<std::uint64_t>(tensor.data.data() - file_.data());
      if (begin != at) {
        refuse(at, fmt::format("tensor '{}' begins at byte {}, which {}", tensor.name, begin,
                               begin < at ? "belongs to another one" : "leaves a gap"));
      }
      at += tensor.data.size();
    }
    if (at != file_.size()) refuse(at, fmt::format("{} bytes follow that belong to no tensor", file_.size() - at));
    return all;
  }

 private:
  [[noreturn]] void refuse(std::uint64_t at, const std::string& why) const {
    fail<DataError>("{}: at byte {}: {}; this is not a safetensors file, or it is damaged", path_.string(), at, why);
  }

  std::uint64_t header_bytes() const {
    if (file_.size() < kLengthBytes) refuse(0, fmt::format("the file ends after {} bytes", file_.size()));
    std::uint64_t length = 0;
    std::memcpy(&length, file_.data(), kLengthBytes);
    if (length > kMostHeader || length > file_.size() - kLengthBytes) {
      refuse(0, fmt::format("it announces a header of {} bytes in a file of {}", length, file_.size()));
    }
    return length;
  }

  json parsed(std::uint64_t length) const {
    const auto* text = reinterpret_cast<const char*>(file_.data()) + kLengthBytes;
    try {
      return json::parse(text, text + length);
    } catch (const json::parse_error& e) {
      refuse(kLengthBytes + (e.byte > 0 ? e.byte - 1 : 0), "the header is not JSON");
    }
  }

  void read_notes(const json& value, std::map<std::string, std::string>& notes) const {
    if (!value.is_object()) refuse(kLengthBytes, "__metadata__ is not a JSON object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) refuse(kLengthBytes, fmt::format("'{}' of __metadata__ is not a text", key));
      notes[key] = text.get<std::string>();
    }
  }

  TensorView described(const std::string& name, const json& value) const {
    TensorView tensor{name, {}, {}, {}};
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value["dtype"].is_string() || !value["shape"].is_array()) {
      refuse(kLengthBytes, fmt::format("tensor '{}' has not exactly dtype, shape and data_offsets", name));
    }
    const auto word = value["dtype"].get<std::string>();
    const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) { return word == k.name; });
    if (kind == kKinds.end()) refuse(kLengthBytes, fmt::format("tensor '{}' is of an unknown type '{}'", name, word));
    tensor.dtype = kind->dtype;
    for (const json& n : value["shape"]) tensor.shape.push_back(static_cast<std::int64_t>(count(name, n)));
    return tensor;
  }

  std::pair<std::uint64_t, std::uint64_t> offsets(const std::string& name, const json& value) const {
    const auto found = value.find("data_offsets");
    if (found == value.end() || !found->is_array() || found->size() != 2) {
      refuse(kLengthBytes, fmt::format("tensor '{}' has no pair of data_offsets", name));
    }
    return {count(name, (*found)[0]), count(name, (*found)[1])};
  }

  std::uint64_t count(const std::string& name, const json& value) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
      refuse(kLengthBytes, fmt::format("tensor '{}' has a size or an offset that is not a count", name));
    }
    return value.get<std::uint64_t>();
  }

  const std::filesystem::path& path_;
  std::span<const std::byte> file_;
};

std::vector<std::byte> read_all(const std::filesystem::path& path, const FileSum* expected) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error)
    fail<DataError>("{}: cannot be read ({}); check the name and its permissions", path.string(), error.message());
  if (expected != nullptr && size != expected->bytes) {
    fail<DataError>("{}: at byte {}: it has {} bytes where {} were written; it is damaged", path.string(),
                    std::min<std::uint64_t>(size, expected->bytes), size, expected->bytes);
  }
  std::ifstream in(path, std::ios::binary);
  std::vector<std::byte> bytes(size);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!in || static_cast<std::uint64_t>(in.gcount()) != size) {
    fail<DataError>("{}: reading stopped at byte {} of {}; check its permissions and the disk", path.string(),
                    std::max<std::streamsize>(0, in.gcount()), size);
  }
  return bytes;
}

}  // namespace

std::string to_text(Dtype dtype) { return kind_of(dtype).name; }
std::size_t bytes_of(Dtype dtype) { return kind_of(dtype).bytes; }

FileSum write_safetensors(const std::filesystem::path& path, std::vector<TensorView> tensors,
                          const std::map<std::string, std::string>& notes) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const TensorView& a, const TensorView& b) { return bytes_of(a.dtype) > bytes_of(b.dtype); });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!notes.empty()) header["__metadata__"] = notes;
  std::uint64_t at = 0;
  for (const TensorView& tensor : tensors) {
    check(size_of(tensor.dtype, tensor.shape) == tensor.data.size(), "tensor '{}' has {} bytes, not those of its shape",
          tensor.name, tensor.data.size());
    check(!header.contains(tensor.name), "two tensors are both named '{}'", tensor.name);
    header[tensor.name] = {
        {"dtype", to_text(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {at, at + tensor.data.size()}}};
    at += tensor.data.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');  // the data begins aligned
  const std::uint64_t length = text.size();

  AtomicFile file(path);
  Hasher hasher;
  FileSum sum;
  const auto put = [&](std::span<const std::byte> bytes) {
    file.write(bytes);
    hasher.add(bytes);
    sum.bytes += bytes.size();
  };
  put(std::as_bytes(std::span(&length, 1)));
  put(std::as_bytes(std::span(text)));
  for (const TensorView& tensor : tensors) put(tensor.data);
  file.commit();
  sum.hash = hasher.value();
  return sum;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, const FileSum* expected)
    : bytes_(read_all(path, expected)), sum_{bytes_.size(), hash_bytes(bytes_)} {
  if (expected != nullptr && sum_.hash != expected->hash) {
    // The header's own checks may find the place; else it is somewhere in the data.
    HeaderReader(path, bytes_).tensors(notes_);
    fail<DataError>("{}: between byte 0 and byte {}: it has the hash {:016x} where {:016x} was written; it is damaged",
                    path.string(), bytes_.size(), sum_.hash, expected->hash);
  }
  tensors_ = HeaderReader(path, bytes_).tensors(notes_);
}

}  // namespace slipstream
