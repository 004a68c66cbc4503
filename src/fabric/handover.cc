// SPDX-License-Identifier: Apache-2.0
#include "fabric/handover.h"

#include <fmt/format.h>

#include <algorithm>

namespace slipstream {

std::uint64_t Handover::send(std::span<const std::byte> bytes, Report report) {
  const std::lock_guard lock(mutex_);
  sends_.push_back({++operations_, bytes, std::move(report)});
  meet();
  return operations_;
}

std::uint64_t Handover::recv(std::span<std::byte> bytes, Report report) {
  const std::lock_guard lock(mutex_);
  receives_.push_back({++operations_, bytes, std::move(report)});
  meet();
  return operations_;
}

void Handover::meet() {
  if (sends_.empty() || receives_.empty()) return;
  const auto from = std::move(sends_.front());
  const auto to = std::move(receives_.front());
  sends_.pop_front();
  receives_.pop_front();
  std::string error;
  if (from.bytes.size() == to.bytes.size()) {
    std::copy(from.bytes.begin(), from.bytes.end(), to.bytes.begin());
  } else {
    error = fmt::format("{} bytes were sent where {} are received", from.bytes.size(), to.bytes.size());
  }
  from.report(error);
  to.report(error);
}

void Handover::withdraw(std::uint64_t operation) {
  const std::lock_guard lock(mutex_);
  const auto end = [operation](auto& waiting) {
    const auto found = std::find_if(waiting.begin(), waiting.end(),
                                    [operation](const auto& one) { return one.operation == operation; });
    if (found == waiting.end()) return;
    found->report("it was given up ");
    waiting.erase(found);
  };
  end(sends_);
  end(receives_);
}

}  // namespace slipstream
