// SPDX-License-Identifier: Apache-2.0
//
// Handover: one direction of a connection between two ends in the same process (a worker and the server beside it),
// without a socket. Sends and receives meet in order; whoever comes second copies, and both are told. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>

namespace slipstream {

class Handover {
 public:
  using Report = std::function<void(std::string error)>;  // called once, on either side's thread; empty: it arrived

  // The memory stays untouched until the report. What is returned names the operation for withdraw().
  std::uint64_t send(std::span<const std::byte> bytes, Report report);
  std::uint64_t recv(std::span<std::byte> bytes, Report report);

  // Ends an operation that has not met its counterpart, with an error; does nothing to any other.
  void withdraw(std::uint64_t operation);

 private:
  template <typename Byte>
  struct Waiting {
    std::uint64_t operation;
    std::span<Byte> bytes;
    Report report;
  };
  void meet();

  std::mutex mutex_;
  std::uint64_t operations_ = 0;
  std::deque<Waiting<const std::byte>> sends_;  // of these two at most one is not empty
  std::deque<Waiting<std::byte>> receives_;
};

}  // namespace slipstream
