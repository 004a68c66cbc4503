// SPDX-License-Identifier: Apache-2.0
#include "base/process_usage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace slipstream {
namespace {

TEST(ProcessUsage, CountsThreadsAndTheirWaits) {
  std::array<int, 2> there{}, back{};
  ASSERT_EQ(pipe(there.data()), 0);
  ASSERT_EQ(pipe(back.data()), 0);
  const ProcessUsage before = ProcessUsage::now();
  std::int64_t threads = 0;
  std::thread other([&] {
    for (char c = 0; read(there[0], &c, 1) == 1;) {
      threads = ProcessUsage::now().threads;
      if (write(back[1], &c, 1) != 1) return;
    }
  });
  for (int i = 0; i < 100; ++i) {  // each waits for the other
    char c = 'x';
    ASSERT_EQ(write(there[1], &c, 1), 1);
    ASSERT_EQ(read(back[0], &c, 1), 1);
  }
  close(there[1]);
  other.join();
  EXPECT_EQ(threads, before.threads + 1);
  EXPECT_GT(ProcessUsage::now().voluntary_switches, before.voluntary_switches);
  for (const int fd : {there[0], back[0], back[1]}) close(fd);
}

}  // namespace
}  // namespace slipstream
