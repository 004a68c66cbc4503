// SPDX-License-Identifier: Apache-2.0
//
// EventFile: figures of a run as TensorBoard reads them. A file is a sequence of records (TFRecord), each an Event of
// TensorBoard's protocol buffers, written here by hand: the few fields that scalars and texts need.
//
//   record:  length (8 bytes) | masked crc32c of those | event | masked crc32c of that        all little-endian
//
// Every run makes a new file; TensorBoard reads the files of a folder in the order of their names. If an earlier run of
// the folder is resumed, its figures from that step on no longer count. Records are handed to the system one by one: a
// killed run has all but the last.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace slipstream {

std::uint32_t crc32c(std::string_view bytes);           // Castagnoli's polynomial
void put_varint(std::string& to, std::uint64_t value);  // seven bits a byte, the lowest first
std::string event_record(std::string_view event);       // with its length and checksums

class EventFile {
 public:
  // Begins at this step. 0: earlier files of the folder are removed. ConfigError where it cannot write.
  EventFile(const std::string& folder, std::int64_t first_step);

  using Scalar = std::pair<std::string_view, double>;  // tag, value
  void scalars(std::int64_t step, std::span<const Scalar> values);
  void text(std::int64_t step, std::string_view tag, std::string_view markdown);

 private:
  void write(std::int64_t step, std::string_view what);

  std::string path_;
  std::ofstream file_;
};

}  // namespace slipstream
