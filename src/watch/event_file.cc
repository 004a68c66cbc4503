// SPDX-License-Identifier: Apache-2.0
#include "watch/event_file.h"

#include <slipstream/base/error.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace slipstream {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The fields that are written, with their numbers in event.proto, summary.proto, tensor.proto and tensor_shape.proto.
namespace field {
constexpr std::uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;  // Event
constexpr std::uint32_t kStatus = 1;                                                                // SessionLog
constexpr std::uint32_t kValue = 1;                                                                 // Summary
constexpr std::uint32_t kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;                     // Summary.Value
constexpr std::uint32_t kPluginData = 1, kDataClass = 4;                                            // SummaryMetadata
constexpr std::uint32_t kPluginName = 1;                                                            // … .PluginData
constexpr std::uint32_t kDtype = 1, kShape = 2, kStringVal = 8;                                     // TensorProto
constexpr std::uint32_t kDim = 2, kSize = 1;                                                        // TensorShapeProto
}  // namespace field
constexpr std::uint64_t kStart = 1;        // SessionLog.SessionStatus
constexpr std::uint64_t kStringType = 7;   // DataType DT_STRING
constexpr std::uint64_t kTensorClass = 2;  // DataClass DATA_CLASS_TENSOR

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
void put_fixed(std::string& to, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

std::string key(std::uint32_t number, WireType type) {
  std::string made;
  put_varint(made, number << 3 | type);
  return made;
}

std::string integer(std::uint32_t number, std::uint64_t value) {
  std::string made = key(number, kVarint);
  put_varint(made, value);
  return made;
}

std::string real64(std::uint32_t number, double value) {
  std::string made = key(number, kFixed64);
  put_fixed(made, std::bit_cast<std::uint64_t>(value));
  return made;
}

std::string real32(std::uint32_t number, double value) {
  std::string made = key(number, kFixed32);
  put_fixed(made, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  return made;
}

// A field with bytes in it: a text or a message.
std::string bytes(std::uint32_t number, std::string_view value) {
  std::string made = key(number, kBytes);
  put_varint(made, value.size());
  return made.append(value);
}

std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8U; }

bool is_event_file(const fs::directory_entry& entry) { return entry.path().filename().string().starts_with(kPrefix); }

// Seconds since 1970, but later than the time in the name of every existing file.
std::int64_t time_for_name(const fs::path& folder) {
  auto seconds = static_cast<std::int64_t>(std::time(nullptr));
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!is_event_file(entry)) continue;
    const std::string name = entry.path().filename().string();
    seconds = std::max<std::int64_t>(seconds, std::atoll(name.c_str() + kPrefix.size()) + 1);
  }
  return seconds;
}

}  // namespace

std::uint32_t crc32c(std::string_view text) {
  static constexpr auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
      std::uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78U : 0);
      table[i] = crc;
    }
    return table;
  }();
  std::uint32_t crc = ~0U;
  for (const char c : text) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

std::string event_record(std::string_view event) {
  std::string record;
  put_fixed(record, static_cast<std::uint64_t>(event.size()));
  put_fixed(record, masked(crc32c(record)));
  record.append(event);
  put_fixed(record, masked(crc32c(event)));
  return record;
}

EventFile::EventFile(const std::string& folder, std::int64_t first_step) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  try {
    fs::create_directories(folder);
    if (first_step == 0) {
      for (const auto& entry : fs::directory_iterator(folder)) {
        if (is_event_file(entry)) fs::remove(entry);
      }
    }
    path_ = fmt::format("{}/{}{}.{}.{}", folder, kPrefix, time_for_name(folder), host.data(), getpid());
  } catch (const fs::filesystem_error& e) {
    fail<ConfigError>("--tensorboard: cannot write to {}: {}", folder, e.code().message());
  }
  file_.open(path_, std::ios::binary | std::ios::trunc);
  if (!file_) fail<ConfigError>("--tensorboard: cannot write {}: {}", path_, std::strerror(errno));
  write(0, bytes(field::kFileVersion, "brain.Event:2"));
  write(first_step, bytes(field::kSessionLog, integer(field::kStatus, kStart)));
}

void EventFile::scalars(std::int64_t step, std::span<const Scalar> values) {
  std::string summary;
  for (const auto& [tag, value] : values) {
    summary += bytes(field::kValue, bytes(field::kTag, tag) + real32(field::kSimpleValue, value));
  }
  write(step, bytes(field::kSummary, summary));
}

// A tensor of one string, for TensorBoard's text plugin.
void EventFile::text(std::int64_t step, std::string_view tag, std::string_view markdown) {
  const std::string metadata =
      bytes(field::kPluginData, bytes(field::kPluginName, "text")) + integer(field::kDataClass, kTensorClass);
  const std::string tensor = integer(field::kDtype, kStringType) +
                             bytes(field::kShape, bytes(field::kDim, integer(field::kSize, 1))) +
                             bytes(field::kStringVal, markdown);
  write(step, bytes(field::kSummary, bytes(field::kValue, bytes(field::kTag, tag) + bytes(field::kTensor, tensor) +
                                                              bytes(field::kMetadata, metadata))));
}

void EventFile::write(std::int64_t step, std::string_view what) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string event = real64(field::kWallTime, now) + integer(field::kStep, static_cast<std::uint64_t>(step));
  file_ << event_record(event.append(what)) << std::flush;
  if (!file_) fail<ConfigError>("cannot write {} for TensorBoard; is the disk full?", path_);
}

}  // namespace slipstream
