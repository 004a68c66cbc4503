// SPDX-License-Identifier: Apache-2.0
#include "lab/frame_switch.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

namespace slipstream {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr FrameSwitch::Nanoseconds kMs = 1'000'000;
constexpr int kEverybody = 255;

// A frame from one host's address to another's, with a number to know it by.
std::vector<std::byte> frame(int from, int to, int number = 0, std::size_t size = 1000) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < 6; ++i) bytes[i] = static_cast<std::byte>(to == kEverybody ? 0xff : i < 5 ? 2 : to);
  for (std::size_t i = 6; i < 12; ++i) bytes[i] = static_cast<std::byte>(i < 11 ? 2 : from);
  bytes[14] = static_cast<std::byte>(number & 0xff);
  bytes[15] = static_cast<std::byte>(number >> 8);
  return bytes;
}

// What came out.
struct Arrival {
  int port;
  int number;
  std::size_t size;
  bool operator==(const Arrival&) const = default;
};

// A switch whose hosts 0 … hosts-1 and hub have all spoken once, so that it knows where they are.
struct World {
  World(const DistanceSpec& spec, int hosts)
      : frames(spec, hosts, [this](int port, std::span<const std::byte> bytes) {
          arrivals.push_back({port, static_cast<int>(bytes[14]) | static_cast<int>(bytes[15]) << 8, bytes.size()});
        }) {
    for (int port = 0; port <= hosts; ++port) frames.accept(port, frame(port, port), 0);
    EXPECT_TRUE(arrivals.empty()) << "a frame to oneself goes nowhere";
  }
  std::vector<Arrival> until(FrameSwitch::Nanoseconds now) {
    frames.run_until(now);
    return std::exchange(arrivals, {});
  }

  std::vector<Arrival> arrivals;
  FrameSwitch frames;
};

TEST(FrameSwitch, DelaysFramesBetweenHosts) {
  World world({kUnlimited, 25, 0}, 3);
  world.frames.accept(0, frame(0, 2, 7), 5 * kMs);
  EXPECT_EQ(world.frames.run_until(5 * kMs), 30 * kMs) << "the time of the next delivery";
  EXPECT_TRUE(world.until(30 * kMs - 1).empty());
  EXPECT_EQ(world.until(30 * kMs), (std::vector<Arrival>{{2, 7, 1000}}));
  EXPECT_EQ(world.frames.run_until(31 * kMs), FrameSwitch::kNever);
}

TEST(FrameSwitch, TheHubIsBesideEveryHost) {
  World world({1e6, 25, 0.99}, 2);
  for (int i = 0; i < 100; ++i) {
    world.frames.accept(0, frame(0, 2, i), kMs);
    world.frames.accept(2, frame(2, 1, i), kMs);
  }
  EXPECT_EQ(world.arrivals.size(), 200U) << "neither delayed nor limited nor lost";
}

// 1000 bytes at 8 Mb/s take 1 ms.
TEST(FrameSwitch, APortCarriesItsRate) {
  World world({8e6, 10, 0}, 3);
  world.frames.accept(0, frame(0, 2, 1), 0);
  world.frames.accept(1, frame(1, 2, 2), 0);
  world.frames.accept(1, frame(1, 0, 3), 0);
  EXPECT_EQ(world.until(11 * kMs - 1), (std::vector<Arrival>{}));
  EXPECT_EQ(world.until(11 * kMs), (std::vector<Arrival>{{0, 3, 1000}, {2, 1, 1000}}));
  EXPECT_EQ(world.until(12 * kMs), (std::vector<Arrival>{{2, 2, 1000}}))
      << "two frames at one port, one after the other";
}

TEST(FrameSwitch, AFullQueueDropsAndTheRestKeepsItsOrder) {
  World world({8e6, 10, 0}, 2);
  for (int i = 0; i < 150; ++i) world.frames.accept(0, frame(0, 1, i), 0);
  const auto arrived = world.until(1000 * kMs);
  EXPECT_EQ(arrived.size(), 101U) << "what waits up to 100 ms";
  for (std::size_t i = 0; i < arrived.size(); ++i) EXPECT_EQ(arrived[i].number, static_cast<int>(i));
  EXPECT_EQ(world.frames.dropped(), 49);
  world.frames.accept(0, frame(0, 1, 777), 2000 * kMs);
  EXPECT_EQ(world.until(3000 * kMs).size(), 1U) << "and then there is room again";
}

// A round that comes late finds the air's frames as they arrived, not as it came.
TEST(FrameSwitch, CountsTimeFromTheFramesNotFromTheCalls) {
  World world({8e6, 10, 0}, 2);
  for (int i = 0; i < 5; ++i) world.frames.accept(0, frame(0, 1, i), i * kMs);
  EXPECT_EQ(world.until(15 * kMs).size(), 5U) << "a frame a millisecond, the first at 11 ms";
}

TEST(FrameSwitch, LosesThePartOfTheFramesThatItWasToldToAlwaysTheSame) {
  std::vector<Arrival> first;
  for (int run = 0; run < 2; ++run) {
    World world({kUnlimited, 1, 0.1}, 2);
    for (int i = 0; i < 20'000; ++i) world.frames.accept(0, frame(0, 1, i, 64), i);
    const auto arrived = world.until(1000 * kMs);
    EXPECT_NEAR(static_cast<double>(arrived.size()), 18'000, 5 * 43);  // five deviations
    EXPECT_EQ(world.frames.dropped(), 0);
    if (run == 0) first = arrived;
    EXPECT_EQ(arrived, first);
  }
}

TEST(FrameSwitch, WhatIsForAllOrForAnUnknownAddressGoesToAllOthers) {
  World world({kUnlimited, 1, 0}, 3);
  for (const int to : {kEverybody, 99}) {
    world.frames.accept(1, frame(1, to), 0);
    auto arrived = world.until(kMs);
    ASSERT_EQ(arrived.size(), 3U);
    EXPECT_EQ(arrived[0].port, 3) << "the hub at once";
    EXPECT_EQ(arrived[1].port, 0);
    EXPECT_EQ(arrived[2].port, 2);
  }
}

TEST(FrameSwitch, DropsWhatIsNoFrame) {
  World world({kUnlimited, 1, 0}, 2);
  world.frames.accept(0, std::vector<std::byte>(5), 0);
  world.frames.accept(0, frame(0, 1, 0, FrameSwitch::kMaxFrameBytes + 1), 0);
  EXPECT_TRUE(world.until(kMs).empty());
  EXPECT_EQ(world.frames.dropped(), 2);
}

TEST(FrameSwitch, HoldsABoundedNumberOfFrames) {
  World world({kUnlimited, 1000, 0}, 2);
  const auto small = frame(0, 1, 0, 64);
  for (std::size_t i = 0; i < FrameSwitch::kMaxFrames + 3; ++i) world.frames.accept(0, small, 0);
  EXPECT_EQ(world.frames.dropped(), 3);
  EXPECT_EQ(world.until(1000 * kMs).size(), FrameSwitch::kMaxFrames);
}

}  // namespace
}  // namespace slipstream
