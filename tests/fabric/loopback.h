// SPDX-License-Identifier: Apache-2.0
//
// A job over the real wire inside one process: every rank a thread with a MeshFabric of its own, over the loopback
// interface, on a port the system chooses.
#pragma once

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "fabric/mesh_fabric.h"

namespace slipstream::test {

// The rendezvous of such a job.
inline HubOptions hub_for(int ranks) {
  return {.ranks = ranks, .workers = ranks, .timeout_seconds = 30, .join_timeout_seconds = 30};
}

// An operation that hangs ends as an error before the test runner loses patience.
inline Rendezvous loopback(const Hub& hub, int rank, int size) {
  return {.rank = rank, .size = size, .master_port = hub.port(), .timeout_seconds = 30, .join_timeout_seconds = 30};
}

// Runs `body` once per rank, each on a thread of its own, to the end of all. What a body throws is returned by rank.
inline std::vector<std::exception_ptr> run_ranks(const Hub& hub, int size,
                                                 const std::function<void(MeshFabric&)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        MeshFabric net(loopback(hub, rank, size));
        body(net);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// The same where no rank may fail.
inline void run_ranks(int size, const std::function<void(MeshFabric&)>& body) {
  const Hub hub(hub_for(size));
  for (const std::exception_ptr& error : run_ranks(hub, size, body)) {
    if (error) std::rethrow_exception(error);
  }
}

// The message of an error of kind E; a failure of the test where it is none.
template <typename E>
std::string message_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "an error of another kind: " << e.what();
  }
  return "";
}

}  // namespace slipstream::test
