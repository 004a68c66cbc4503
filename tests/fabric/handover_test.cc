// SPDX-License-Identifier: Apache-2.0
#include "fabric/handover.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

namespace slipstream {
namespace {

std::span<const std::byte> bytes_of(const std::vector<int>& values) { return std::as_bytes(std::span(values)); }
std::span<std::byte> bytes_of(std::vector<int>& values) { return std::as_writable_bytes(std::span(values)); }

struct Told {
  std::vector<std::string> ends;
  Handover::Report report() {
    return [this](std::string error) { ends.push_back(std::move(error)); };
  }
};

TEST(Handover, SendsAndReceivesMeetInOrderWhoeverComesFirst) {
  Handover wire;
  Told told;
  const std::vector<int> first{1, 2}, second{3};
  std::vector<int> to_first(2), to_second(1);
  wire.send(bytes_of(first), told.report());
  wire.send(bytes_of(second), told.report());
  EXPECT_TRUE(told.ends.empty());
  wire.recv(bytes_of(to_first), told.report());
  EXPECT_EQ(told.ends.size(), 2U);
  wire.recv(bytes_of(to_second), told.report());
  wire.recv(bytes_of(to_first), told.report());
  EXPECT_EQ(told.ends, std::vector<std::string>(4));
  wire.send(bytes_of(std::as_const(to_first)), told.report());
  EXPECT_EQ(told.ends.size(), 6U);
  EXPECT_EQ(to_first, first);
  EXPECT_EQ(to_second, second);
}

TEST(Handover, DifferentSizesAreAnErrorOnBothSides) {
  Handover wire;
  Told told;
  const std::vector<int> sent{1, 2};
  std::vector<int> received{7};
  wire.send(bytes_of(sent), told.report());
  wire.recv(bytes_of(received), told.report());
  ASSERT_EQ(told.ends.size(), 2U);
  EXPECT_EQ(told.ends[0], "8 bytes were sent where 4 are received");
  EXPECT_EQ(told.ends[1], told.ends[0]);
  EXPECT_EQ(received, std::vector<int>{7});
}

TEST(Handover, WhatIsWithdrawnMeetsNobody) {
  Handover wire;
  Told given_up, told;
  const std::vector<int> gone{1}, kept{2};
  std::vector<int> received(1);
  const auto first = wire.send(bytes_of(gone), given_up.report());
  const auto second = wire.send(bytes_of(kept), told.report());
  wire.withdraw(first);
  EXPECT_EQ(given_up.ends.size(), 1U);
  EXPECT_FALSE(given_up.ends[0].empty());
  wire.recv(bytes_of(received), told.report());
  EXPECT_EQ(received, kept);
  wire.withdraw(second);  // over: nothing happens
  EXPECT_EQ(told.ends, std::vector<std::string>(2));
}

TEST(Handover, TwoThreadsSeeEveryMessageOnce) {
  constexpr int kMessages = 2000;
  Handover wire;
  std::vector<int> sent(kMessages), received(kMessages);
  std::iota(sent.begin(), sent.end(), 1);
  std::atomic<int> ended{0};
  const auto count = [&](const std::string& error) { ended += error.empty() ? 1 : 0; };
  std::thread sender([&] {
    for (const int& value : sent) wire.send(std::as_bytes(std::span(&value, 1)), count);
  });
  for (int& value : received) wire.recv(std::as_writable_bytes(std::span(&value, 1)), count);
  sender.join();
  EXPECT_EQ(ended, 2 * kMessages);
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace slipstream
