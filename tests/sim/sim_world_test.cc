// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_world.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <array>
#include <cstring>
#include <stdexcept>

namespace slipstream {
namespace {

SimWorldOptions world_of(int ranks, LinkModel link = {0.001, 1000.0}) {
  SimWorldOptions options;
  options.ranks = ranks;
  options.link = link;
  options.record_events = true;
  return options;
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
std::span<std::byte> bytes_of(std::string& text) { return std::as_writable_bytes(std::span(text)); }

TEST(SimWorld, SumsInRankOrderInFloat) {
  // 1e8 + 1 - 1e8 is 0 in this order of addition and 1 in others.
  const std::vector<float> mine = {1e8F, 1.0F, -1e8F};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto options = world_of(3);
    options.seed = seed;
    std::vector<float> sums(3);
    SimWorld(options).run([&](SimPort& port) {
      const auto r = static_cast<std::size_t>(port.rank());
      sums[r] = mine[r];
      port.sum(std::span(&sums[r], 1)).wait();
    });
    EXPECT_EQ(sums, (std::vector<float>{0.0F, 0.0F, 0.0F}));
  }
}

TEST(SimWorld, RoundsPartsAndTotalOfA16BitSum) {
  const float tiny = 0x1p-12F;  // below half of fp16's last place at 1
  std::vector<float> sums = {1.0F + tiny, 1.0F + tiny};
  auto outcomes = SimWorld(world_of(2)).run([&](SimPort& port) {
    port.sum(std::span(&sums[static_cast<std::size_t>(port.rank())], 1), Wire::kFp16).wait();
  });
  EXPECT_EQ(sums, (std::vector<float>{2.0F, 2.0F}));
  EXPECT_DOUBLE_EQ(outcomes[0].ended_at, 0.001 + 2 / 1000.0);
}

TEST(SimWorld, GathersInRankOrder) {
  std::vector<std::string> all(3, "......");
  SimWorld(world_of(3)).run([&](SimPort& port) {
    const std::string mine(2, static_cast<char>('a' + port.rank()));
    port.gather(bytes_of(mine), bytes_of(all[static_cast<std::size_t>(port.rank())])).wait();
  });
  EXPECT_EQ(all, std::vector<std::string>(3, "aabbcc"));
}

TEST(SimWorld, AShortSumCostsOneExchangeFromTheLastRankOn) {
  std::vector<double> ends(4);
  SimWorld(world_of(4)).run([&](SimPort& port) {
    std::vector<float> values(100);
    port.compute(port.rank());  // the last comes at 3 s
    port.sum(values).wait();
    ends[static_cast<std::size_t>(port.rank())] = port.clock().now();
  });
  for (double end : ends) EXPECT_DOUBLE_EQ(end, 3.0 + 0.001 + 3 * 400.0 / 1000.0);
}

TEST(SimWorld, ALongerSumCostsTwoDelaysAndTwiceItsShares) {
  for (const auto& [wire, width] : {std::pair{Wire::kFp32, 4.0}, std::pair{Wire::kBf16, 2.0}}) {
    for (const int extra : {0, 1}) {  // 64 KiB to three peers is still short
      const auto count = static_cast<std::size_t>((64 << 10) / (3 * width)) + static_cast<std::size_t>(3 * extra);
      auto outcomes = SimWorld(world_of(4)).run([&, wire = wire](SimPort& port) {
        std::vector<float> values(count);
        port.sum(values, wire).wait();
      });
      const double all = width * static_cast<double>(count);
      const double shard = width == 4.0 ? all / 4 : 2.0 * static_cast<double>(sum_shard(count, 4));
      EXPECT_DOUBLE_EQ(outcomes[1].ended_at, extra == 0 ? 0.001 + 3 * all / 1000.0 : 2 * (0.001 + 3 * shard / 1000.0));
    }
  }
}

TEST(SimWorld, AGatherCostsOneExchange) {
  auto outcomes = SimWorld(world_of(4)).run([](SimPort& port) {
    std::string mine(50, 'x'), all(200, '.');
    port.gather(bytes_of(mine), bytes_of(all)).wait();
  });
  EXPECT_DOUBLE_EQ(outcomes[2].ended_at, 0.001 + 3 * 50.0 / 1000.0);
}

TEST(SimWorld, CollectivesShareThePorts) {
  auto outcomes = SimWorld(world_of(2)).run([](SimPort& port) {
    std::vector<float> a(10), b(10);
    InFlight first = port.sum(a), second = port.sum(b);
    second.wait();
    EXPECT_TRUE(first.done());
  });
  EXPECT_DOUBLE_EQ(outcomes[0].ended_at, 0.001 + 2 * 40.0 / 1000.0) << "the second leaves while the first travels";
}

TEST(SimWorld, TheSlowestPortSetsThePaceOfACollective) {
  auto options = world_of(3);
  options.pair_links[{1, 2}] = {0.5, 10.0};
  auto outcomes = SimWorld(options).run([](SimPort& port) {
    std::vector<float> values(30);
    port.sum(values).wait();
  });
  EXPECT_DOUBLE_EQ(outcomes[0].ended_at, 0.5 + 120.0 / 10.0 + 120.0 / 1000.0);
}

TEST(SimWorld, ScaledBytesCountManyTimes) {
  auto options = world_of(2, {0.0, 1000.0});
  options.bytes_scale = 1000.0;
  auto outcomes = SimWorld(options).run([](SimPort& port) {
    std::vector<float> values(10);
    port.sum(values).wait();
  });
  EXPECT_DOUBLE_EQ(outcomes[0].ended_at, 40.0) << "40 KB are still short";
}

TEST(SimWorld, MessagesSerialiseAtTheSendersPort) {
  std::vector<double> sent, received;
  SimWorld(world_of(3)).run([&](SimPort& port) {
    std::string text(100, 'x');
    if (port.rank() == 0) {
      InFlight a = port.send(1, 0, bytes_of(text)), b = port.send(2, 0, bytes_of(text));
      a.wait();
      sent.push_back(port.clock().now());
      b.wait();
      sent.push_back(port.clock().now());
    } else {
      port.recv(0, 0, bytes_of(text)).wait();
      received.push_back(port.clock().now());
    }
  });
  EXPECT_EQ(sent, (std::vector<double>{0.1, 0.2}));
  ASSERT_EQ(received.size(), 2U);
  EXPECT_DOUBLE_EQ(received[0], 0.101);
  EXPECT_DOUBLE_EQ(received[1], 0.201);
}

TEST(SimWorld, MessagesSerialiseAtTheReceiversPort) {
  double end = 0.0;
  SimWorld(world_of(3)).run([&](SimPort& port) {
    std::string a(100, 'x'), b(100, 'y');
    if (port.rank() == 0) {
      InFlight first = port.recv(1, 0, bytes_of(a)), second = port.recv(2, 0, bytes_of(b));
      first.wait();
      second.wait();
      end = port.clock().now();
    } else {
      port.send(0, 0, bytes_of(a)).wait();
    }
  });
  EXPECT_DOUBLE_EQ(end, 0.201);
}

TEST(SimWorld, MessagesAreMatchedByPeerAndTagInOrder) {
  std::string got[3] = {"..", "..", ".."};
  SimWorld(world_of(2)).run([&](SimPort& port) {
    if (port.rank() == 0) {
      const std::string a = "a1", b = "b1", c = "a2";
      InFlight sends[] = {port.send(1, 7, bytes_of(a)), port.send(1, 8, bytes_of(b)), port.send(1, 7, bytes_of(c))};
      for (InFlight& send : sends) send.wait();
    } else {
      port.compute(1.0);  // also for messages that came before anybody expected them
      port.recv(0, 8, bytes_of(got[0])).wait();
      port.recv(0, 7, bytes_of(got[1])).wait();
      port.recv(0, 7, bytes_of(got[2])).wait();
      EXPECT_DOUBLE_EQ(port.clock().now(), 1.0);
    }
  });
  EXPECT_EQ(got[0] + got[1] + got[2], "b1a1a2");
}

TEST(SimWorld, ResultsShowOnlyInWait) {
  SimWorld(world_of(2)).run([](SimPort& port) {
    std::vector<float> values = {1.0F};
    InFlight sum = port.sum(values);
    EXPECT_FALSE(sum.done());
    port.compute(10.0);
    EXPECT_TRUE(sum.done());
    EXPECT_EQ(values[0], 1.0F);
    sum.wait();
    EXPECT_EQ(values[0], 2.0F);
    EXPECT_DOUBLE_EQ(port.clock().now(), 10.0);
  });
}

TEST(SimWorld, FinishedAtIsTheEndOnTheWireNotOfTheWait) {
  SimWorld(world_of(2)).run([](SimPort& port) {
    std::vector<float> values(10);
    auto operation = port.sum(values).release();
    port.compute(10.0);
    operation->wait();
    EXPECT_DOUBLE_EQ(operation->finished_at(), 0.001 + 40.0 / 1000.0);
    EXPECT_NO_THROW(operation->wait());
  });
}

TEST(SimWorld, FindsOutWhoTouchesMemoryInFlight) {
  using Touch = std::function<void(SimPort&)>;
  const Touch sum = [](SimPort& port) {
    std::vector<float> values(4);
    InFlight op = port.sum(values);
    values[2] = 1.0F;
    op.wait();
  };
  const Touch gather = [](SimPort& port) {
    std::string mine = "ab", all = "....";
    InFlight op = port.gather(bytes_of(mine), bytes_of(all));
    (port.rank() == 0 ? mine : all)[1] = '!';
    op.wait();
  };
  const Touch message = [](SimPort& port) {
    std::string text = "abc";
    InFlight op = port.rank() == 0 ? port.send(1, 0, bytes_of(text)) : port.recv(0, 0, bytes_of(text));
    text[0] = '!';
    op.wait();
  };
  for (const Touch& touch : {sum, gather, message}) {
    try {
      SimWorld(world_of(2)).run(touch);
      FAIL() << "nobody noticed";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("changed the operation's memory"), std::string::npos) << error.what();
    }
  }
}

TEST(SimWorld, RefusesRanksThatIssueDifferentOperations) {
  try {
    SimWorld(world_of(2)).run([](SimPort& port) {
      std::vector<float> values(port.rank() == 0 ? 10 : 11);
      port.compute(port.rank());
      port.sum(values).wait();
    });
    FAIL() << "the sizes differ";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("ranks issue different operations"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 1 issues sum of 44 bytes where rank 0 issued sum of 40 bytes"), std::string::npos)
        << text;
  }
}

TEST(SimWorld, RefusesAMessageOfAnotherSize) {
  const auto body = [](SimPort& port) {
    std::string text(port.rank() == 0 ? 4 : 5, 'x');
    (port.rank() == 0 ? port.send(1, 0, bytes_of(text)) : port.recv(0, 0, bytes_of(text))).wait();
  };
  EXPECT_THROW(SimWorld(world_of(2)).run(body), Error);
}

TEST(SimWorld, OneRankAndEmptySpansEndAtOnce) {
  auto alone = SimWorld(world_of(1)).run([](SimPort& port) {
    std::vector<float> values = {3.0F};
    port.sum(values).wait();
    EXPECT_EQ(values[0], 3.0F);
    std::string mine = "ab", all = "..";
    port.gather(bytes_of(mine), bytes_of(all)).wait();
    EXPECT_EQ(all, "ab");
  });
  EXPECT_EQ(alone[0].ended_at, 0.0);
  auto empty = SimWorld(world_of(2)).run([](SimPort& port) {
    port.sum({}).wait();
    port.gather({}, {}).wait();
    (port.rank() == 0 ? port.send(1, 0, {}) : port.recv(0, 0, {})).wait();
  });
  EXPECT_EQ(empty[1].ended_at, 0.0);
}

TEST(SimWorld, ThrowsWhatABodyThrowsAndEndsTheOthers) {
  int unwound = 0;
  struct Count {
    int& n;
    ~Count() { ++n; }
  };
  const auto body = [&](SimPort& port) {
    const Count count{unwound};
    std::vector<float> values(4);
    InFlight sum;
    port.compute(0.5);
    if (port.rank() == 2) throw std::out_of_range("from rank 2");
    sum = port.sum(values);
    sum.wait();
  };
  EXPECT_THROW(SimWorld(world_of(4)).run(body), std::out_of_range);
  EXPECT_GE(unwound, 1);
}

// A run with ties, messages and collectives, as a diary.
std::vector<SimEvent> diary(std::uint64_t seed) {
  auto options = world_of(5);
  options.seed = seed;
  options.faults = {Fault::slow_rank(2, 3.0, FaultPoint::at_step(1), FaultPoint::at_step(2)),
                    Fault::freeze(3, FaultPoint::at_time(0.5), 0.25)};
  SimWorld world(options);
  world.run([](SimPort& port) {
    for (int t = 0; t < 3; ++t) {
      port.mark_step(t);
      port.compute(0.1);
      std::string out(64, 'x'), in(64, '.');
      std::vector<float> values(8, 1.0F);
      InFlight send = port.send((port.rank() + 1) % 5, 0, bytes_of(out));
      InFlight recv = port.recv((port.rank() + 4) % 5, 0, bytes_of(in));
      InFlight sum = port.sum(values);
      recv.wait();
      sum.wait();
      send.wait();
    }
  });
  return world.events();
}

TEST(SimWorld, SameSeedSameRun) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) EXPECT_EQ(diary(seed), diary(seed));
}

TEST(SimWorld, SeedsBreakTiesDifferently) {
  const auto first = diary(0);
  bool differs = false;
  for (std::uint64_t seed = 1; seed < 10; ++seed) differs = differs || diary(seed) != first;
  EXPECT_TRUE(differs);
}

TEST(SimWorld, AThousandRanksFit) {
  auto options = world_of(1024);
  options.record_events = false;
  double total = 0.0;
  auto outcomes = SimWorld(options).run([&](SimPort& port) {
    std::vector<float> values = {1.0F};
    port.sum(values).wait();
    total += values[0];
  });
  EXPECT_EQ(total, 1024.0 * 1024.0);
  EXPECT_DOUBLE_EQ(outcomes[1023].ended_at, 0.001 + 1023 * 4.0 / 1000.0);
}

TEST(SimWorld, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(SimWorld(world_of(0)), ConfigError);
  EXPECT_THROW(SimWorld(world_of(2, {0.0, 0.0})), ConfigError);
  EXPECT_THROW(SimWorld(world_of(2, {-1.0, 1.0})), ConfigError);
  auto options = world_of(2);
  options.faults = {Fault::crash(2, FaultPoint::at_step(0))};
  EXPECT_THROW(SimWorld{options}, ConfigError);
  options = world_of(2);
  options.timeout_s = 0.0;
  EXPECT_THROW(SimWorld{options}, ConfigError);
}

}  // namespace
}  // namespace slipstream
