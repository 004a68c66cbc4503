// SPDX-License-Identifier: Apache-2.0
#include "fabric/metered_fabric.h"

#include <gtest/gtest.h>

#include "sim/sim_world.h"

namespace slipstream {
namespace {

// 4 ranks on links without latency; a (short) sum of n floats takes 6 n / 1000 s.
void on_four_ranks(const std::function<void(SimPort&, MeteredFabric&)>& body) {
  SimWorldOptions options;
  options.ranks = 4;
  options.link = {0.0, 2000.0};
  SimWorld(options).run([&](SimPort& port) {
    MeteredFabric net(port);
    body(port, net);
  });
}

TEST(MeteredFabric, CountsTheBytesOfAScatterAndAGather) {
  on_four_ranks([](SimPort&, MeteredFabric& net) {
    std::vector<float> values(100);
    net.sum(values).wait();
    Traffic traffic = net.take();
    EXPECT_DOUBLE_EQ(traffic.bytes_sent, 600.0);
    EXPECT_DOUBLE_EQ(traffic.bytes_received, 600.0);
    net.sum(values, Wire::kBf16).wait();
    EXPECT_DOUBLE_EQ(net.take().bytes_sent, 300.0);
  });
}

TEST(MeteredFabric, CountsGatherSendAndRecv) {
  on_four_ranks([](SimPort& port, MeteredFabric& net) {
    std::vector<std::byte> mine(10), all(40);
    net.gather(mine, all).wait();
    Traffic traffic = net.take();
    EXPECT_DOUBLE_EQ(traffic.bytes_sent, 30.0);
    EXPECT_DOUBLE_EQ(traffic.bytes_received, 30.0);
    if (port.rank() > 1) return;
    (port.rank() == 0 ? net.send(1, 0, mine) : net.recv(0, 0, mine)).wait();
    traffic = net.take();
    EXPECT_DOUBLE_EQ(traffic.bytes_sent, port.rank() == 0 ? 10.0 : 0.0);
    EXPECT_DOUBLE_EQ(traffic.bytes_received, port.rank() == 0 ? 0.0 : 10.0);
  });
}

TEST(MeteredFabric, ExposedIsTheTimeBlockedNotTheTimeOnTheWire) {
  on_four_ranks([](SimPort& port, MeteredFabric& net) {
    std::vector<float> values(100);
    InFlight sum = net.sum(values);
    port.compute(0.4);
    sum.wait();
    const Traffic traffic = net.take();
    EXPECT_DOUBLE_EQ(traffic.wire_seconds, 0.6);
    EXPECT_DOUBLE_EQ(traffic.exposed_seconds, 0.2);
  });
}

TEST(MeteredFabric, AHiddenOperationExposesNothing) {
  on_four_ranks([](SimPort& port, MeteredFabric& net) {
    std::vector<float> values(100);
    InFlight sum = net.sum(values);
    port.compute(5.0);
    sum.wait();
    const Traffic traffic = net.take();
    EXPECT_DOUBLE_EQ(traffic.wire_seconds, 0.6);
    EXPECT_DOUBLE_EQ(traffic.exposed_seconds, 0.0);
  });
}

TEST(MeteredFabric, CountsCommonWireTimeOnce) {
  on_four_ranks([](SimPort& port, MeteredFabric& net) {
    std::vector<float> a(100), b(100);
    InFlight first = net.sum(a), second = net.sum(b);  // on the wire until 0.6 and 1.2
    second.wait();
    first.wait();
    port.compute(1.0);
    net.sum(a).wait();  // 2.2 to 2.8: a gap before
    const Traffic traffic = net.take();
    EXPECT_EQ(traffic.operations.size(), 3U);
    EXPECT_DOUBLE_EQ(traffic.wire_seconds, 1.8);
    EXPECT_DOUBLE_EQ(traffic.exposed_seconds, 1.8);
  });
}

TEST(MeteredFabric, CountsTimeAcrossTwoTakesOnce) {
  on_four_ranks([](SimPort&, MeteredFabric& net) {
    std::vector<float> a(100), b(100);
    InFlight first = net.sum(a), second = net.sum(b);
    first.wait();
    EXPECT_DOUBLE_EQ(net.take().wire_seconds, 0.6);
    second.wait();
    EXPECT_DOUBLE_EQ(net.take().wire_seconds, 0.6);
    EXPECT_TRUE(net.take().operations.empty());
  });
}

TEST(MeteredFabric, TheBackgroundLaneIsAlsoCountedApart) {
  on_four_ranks([](SimPort& port, MeteredFabric& net) {
    if (port.rank() > 1) return;
    const auto message = [&](Tag tag, std::vector<std::byte>& bytes) {
      return port.rank() == 0 ? net.send(1, tag, bytes) : net.recv(0, tag, bytes);
    };
    std::vector<std::byte> urgent(1000), background(2000);  // 0.5 and 1 s
    message(kUrgent, urgent).wait();
    InFlight behind = message(kBackground, background);
    port.compute(0.75);
    behind.wait();
    const Traffic traffic = net.take();
    EXPECT_DOUBLE_EQ(traffic.wire_seconds, 1.5);
    EXPECT_DOUBLE_EQ(traffic.exposed_seconds, 0.75);
    EXPECT_DOUBLE_EQ(traffic.background_wire_seconds, 1.0);
    EXPECT_DOUBLE_EQ(traffic.background_exposed_seconds, 0.25);
  });
}

}  // namespace
}  // namespace slipstream
