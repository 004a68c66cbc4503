// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/atomic_file.h"

#include <fcntl.h>
#include <slipstream/base/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace slipstream {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path), temporary_(path.string() + ".tmp") {
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) give_up(errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // the kernel takes no more than 2 GiB at once
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_, bytes.data(), std::min(bytes.size(), kMost));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) give_up(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void AtomicFile::commit() {
  if (fsync(fd_) != 0) give_up(errno);
  const int closed = close(std::exchange(fd_, -1));
  if (closed != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    unlink(temporary_.c_str());
    give_up(error);
  }
  sync_folder(folder_of(path_));
}

void AtomicFile::give_up(int error) const {
  fail<ConfigError>("cannot write {}: {}", path_.string(), std::strerror(error));
}

void write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  write_atomically(path, std::as_bytes(std::span(text)));
}

void sync_folder(const std::filesystem::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  // Some network file systems cannot sync a folder; what they do instead is their own.
  if (!synced && error != EINVAL)
    fail<ConfigError>("cannot sync the folder {}: {}", folder.string(), std::strerror(error));
}

}  // namespace slipstream
