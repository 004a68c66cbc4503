// SPDX-License-Identifier: Apache-2.0
//
// AtomicFile: a file that is there as a whole or not at all. What is written goes to a temporary file in the same
// folder; commit() makes it durable (fsync), gives it its name (rename) and makes the name durable (fsync of the
// folder). Whoever is killed in between leaves the old file, or none, and perhaps the temporary one, whose name ends
// with ".tmp"; it is replaced by the next attempt. One writer at a time for a path.
//
// Every failure is a ConfigError that names the file and the system's reason. Nothing is left behind then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace slipstream {

class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();  // without commit(): takes the temporary file away
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void give_up(int error) const;

  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

void write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_atomically(const std::filesystem::path& path, std::string_view text);

// Makes what was created, renamed or removed in a folder durable.
void sync_folder(const std::filesystem::path& folder);

}  // namespace slipstream
