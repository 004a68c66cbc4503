// SPDX-License-Identifier: Apache-2.0
//
// run_io: the body of an I/O thread. Signals go to other threads.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

namespace slipstream {

inline void run_io(asio::io_context& io) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  const auto guard = asio::make_work_guard(io);
  io.run();
}

}  // namespace slipstream
