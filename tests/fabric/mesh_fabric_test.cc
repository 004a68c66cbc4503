// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <latch>
#include <string>

#include "fabric/loopback.h"
#include "sim/sim_world.h"
#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;
using test::loopback;
using test::message_of;
using test::run_ranks;
using Floats = std::vector<float>;

// Values of both signs and many magnitudes, so that another order of additions would round differently.
Floats values_of(int rank, std::size_t count, std::uint64_t seed = 1) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double a = static_cast<double>((i * 7919 + seed * 104729 + static_cast<std::size_t>(rank) * 1299709) % 10007);
    values[i] = static_cast<float>((a / 5003.5 - 1.0) * std::ldexp(1.0, static_cast<int>(i % 12) - 6));
  }
  return values;
}

// The sum of values_of() over `size` ranks, as every rank of a MeshFabric sees it.
std::vector<Floats> sums(int size, std::size_t count, Wire wire) {
  std::vector<Floats> results(static_cast<std::size_t>(size));
  run_ranks(size, [&](MeshFabric& net) {
    Floats values = values_of(net.rank(), count);
    net.sum(values, wire).wait();
    results[static_cast<std::size_t>(net.rank())] = values;
  });
  return results;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(MeshFabric, SumAddsTheValuesOfAllRanks) {
  for (const int size : {2, 3}) {
    const auto results = sums(size, 1001, Wire::kFp32);
    for (std::size_t i = 0; i < 1001; ++i) {
      double want = 0, magnitude = 0;
      for (int r = 0; r < size; ++r) {
        want += values_of(r, 1001)[i];
        magnitude += std::abs(values_of(r, 1001)[i]);
      }
      ASSERT_NEAR(results[0][i], want, 1e-6 * magnitude) << "element " << i << " of " << size << " ranks";
    }
  }
}

TEST(MeshFabric, SumsAreBitIdenticalOnAllRanksAndFromRunToRun) {
  for (const Wire wire : {Wire::kFp32, Wire::kFp16, Wire::kBf16}) {
    const auto first = sums(3, 4099, wire);
    const auto again = sums(3, 4099, wire);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(same_bits(first[r], first[0])) << "rank " << r;
      EXPECT_TRUE(same_bits(first[r], again[r])) << "rank " << r;
    }
  }
}

TEST(MeshFabric, SixteenBitSumsEqualThoseOfSimWorldBitForBit) {
  for (const Wire wire : {Wire::kFp16, Wire::kBf16}) {
    for (const int size : {2, 3}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{1000}, std::size_t{400003}}) {
        Floats simulated;
        SimWorld({.ranks = size}).run([&](SimPort& net) {
          Floats values = values_of(net.rank(), count);
          net.sum(values, wire).wait();
          if (net.rank() == 0) simulated = values;
        });
        EXPECT_TRUE(same_bits(sums(size, count, wire)[0], simulated)) << size << " ranks, " << count << " values";
      }
    }
  }
}

TEST(MeshFabric, GatherKeepsRankOrder) {
  run_ranks(3, [](MeshFabric& net) {
    const std::string mine = "rank" + std::to_string(net.rank());
    std::string all(15, '-');
    net.gather(bytes_of(mine), std::as_writable_bytes(std::span(all))).wait();
    EXPECT_EQ(all, "rank0rank1rank2");
  });
}

TEST(MeshFabric, GatherIntoTheWrongSizeIsABug) {
  MeshFabric net(Rendezvous{});
  const std::string mine(4, 'a');
  std::string all(7, '-');
  EXPECT_THROW(net.gather(bytes_of(mine), std::as_writable_bytes(std::span(all))), Error);
}

TEST(MeshFabric, MessagesAreMatchedByPeerAndTagInOrder) {
  run_ranks(3, [](MeshFabric& net) {
    const int next = (net.rank() + 1) % 3, before = (net.rank() + 2) % 3;
    const auto text = [](int from, const char* what) { return std::to_string(from) + what; };
    const std::string a = text(net.rank(), "a"), b = text(net.rank(), "b"), other = text(net.rank(), "c");
    std::string got_a(2, '-'), got_b(2, '-'), got_other(2, '-');
    std::vector<InFlight> all;
    // Received in another order of tags than sent; two with one tag stay in order.
    all.push_back(net.recv(before, 9, std::as_writable_bytes(std::span(got_other))));
    all.push_back(net.recv(before, 5, std::as_writable_bytes(std::span(got_a))));
    all.push_back(net.recv(before, 5, std::as_writable_bytes(std::span(got_b))));
    all.push_back(net.send(next, 5, bytes_of(a)));
    all.push_back(net.send(next, 5, bytes_of(b)));
    all.push_back(net.send(next, 9, bytes_of(other)));
    for (InFlight& operation : all) operation.wait();
    EXPECT_EQ(got_a, text(before, "a"));
    EXPECT_EQ(got_b, text(before, "b"));
    EXPECT_EQ(got_other, text(before, "c"));
  });
}

TEST(MeshFabric, EmptySpansEndAtOnceAndDisturbNothing) {
  run_ranks(2, [](MeshFabric& net) {
    for (const Wire wire : {Wire::kFp32, Wire::kFp16}) net.sum(std::span<float>(), wire).wait();
    net.gather({}, {}).wait();
    InFlight nothing = net.rank() == 0 ? net.send(1, 1, {}) : net.recv(0, 1, {});
    EXPECT_TRUE(nothing.done());
    nothing.wait();
    float one = 1;
    net.sum(std::span(&one, 1)).wait();
    EXPECT_EQ(one, 2);
  });
}

TEST(MeshFabric, AloneNeedsNoStoreAndChangesNothing) {
  MeshFabric net(Rendezvous{});
  EXPECT_EQ(net.rank(), 0);
  EXPECT_EQ(net.size(), 1);
  for (const Wire wire : {Wire::kFp32, Wire::kFp16, Wire::kBf16}) {
    Floats values = values_of(0, 100);
    net.sum(values, wire).wait();
    EXPECT_TRUE(same_bits(values, values_of(0, 100)));
  }
  const std::string mine = "mine";
  std::string all(4, '-');
  net.gather(bytes_of(mine), std::as_writable_bytes(std::span(all))).wait();
  EXPECT_EQ(all, "mine");
}

TEST(MeshFabric, ManySumsMayBeInFlightAndBeWaitedForInAnyOrder) {
  constexpr int kSums = 60;
  run_ranks(3, [](MeshFabric& net) {
    std::vector<Floats> values, want;
    for (int i = 0; i < kSums; ++i) {
      const std::size_t count = static_cast<std::size_t>(1 + i * 37 % 500);
      values.emplace_back(count, static_cast<float>(net.rank() + i));  // small whole numbers: exact in 16 bits too
      want.emplace_back(count, static_cast<float>(3 + 3 * i));
    }
    std::vector<InFlight> operations;
    for (std::size_t i = 0; i < kSums; ++i) {
      operations.push_back(net.sum(values[i], i % 3 == 0 ? Wire::kFp32 : i % 3 == 1 ? Wire::kFp16 : Wire::kBf16));
    }
    for (std::size_t i = kSums; i-- > 0;) operations[i].wait();
    EXPECT_EQ(values, want);
  });
}

TEST(MeshFabric, ARankThatLeavesEarlyIsNamedToAllOthersWithTheOperation) {
  const Hub hub(test::hub_for(3));
  const auto errors = run_ranks(hub, 3, [](MeshFabric& net) {
    float one = 1;
    net.sum(std::span(&one, 1)).wait();
    if (net.rank() == 2) return;
    Floats values(1000, 1);
    net.sum(values).wait();
  });
  for (std::size_t r = 0; r < 2; ++r) {
    const std::string text = message_of<FabricError>(errors[r]);
    EXPECT_NE(text.find("rank 2 is lost"), std::string::npos) << text;
    EXPECT_NE(text.find("sum of 1000 floats"), std::string::npos) << text;
  }
  EXPECT_FALSE(errors[2]);
}

TEST(MeshFabric, ALostSenderIsNamedToItsReceiver) {
  const Hub hub(test::hub_for(2));
  const auto errors = run_ranks(hub, 2, [](MeshFabric& net) {
    float one = 1;
    net.sum(std::span(&one, 1)).wait();
    if (net.rank() == 1) return;
    std::string text(100, '-');
    net.recv(1, 3, std::as_writable_bytes(std::span(text))).wait();
  });
  const std::string text = message_of<FabricError>(errors[0]);
  EXPECT_NE(text.find("receive of 100 bytes from rank 1"), std::string::npos) << text;
}

TEST(MeshFabric, AnAnnouncedFailureIsWhatEveryWaitThrows) {
  for (const Wire wire : {Wire::kFp32, Wire::kBf16}) {
    Hub hub(test::hub_for(3));
    const auto errors = run_ranks(hub, 3, [&](MeshFabric& net) {
      float one = 1;
      net.sum(std::span(&one, 1), wire).wait();
      if (net.rank() == 2) {
        hub.announce("worker 2 was taken by wolves");
        hub.announce("a later announcement does not count");
        std::string never(1, '-');  // or the sum could be over before the others know
        net.recv(0, 3, std::as_writable_bytes(std::span(never))).wait();
      }
      Floats values(1000, 1);
      net.sum(values, wire).wait();
    });
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(message_of<FabricError>(errors[r]), "worker 2 was taken by wolves");
  }
}

TEST(MeshFabric, ARankThatNeverJoinsIsNamed) {
  HubOptions options = test::hub_for(2);
  options.join_timeout_seconds = 1;
  const Hub hub(options);
  expect_error<FabricError>([&] { MeshFabric net(loopback(hub, 0, 2)); }, {"rank 1 of 2 did not join"});
}

TEST(MeshFabric, TwoProcessesWithOneRankAreAnErrorOfTheUserOnBoth) {
  const Hub hub(test::hub_for(2));
  std::exception_ptr first;
  std::thread other([&] {
    try {
      MeshFabric net(loopback(hub, 0, 2));
    } catch (...) {
      first = std::current_exception();
    }
  });
  expect_error<ConfigError>([&] { MeshFabric net(loopback(hub, 0, 2)); }, {"two processes claim rank 0", "--rank"});
  other.join();
  EXPECT_NE(message_of<ConfigError>(first).find("two processes claim rank 0"), std::string::npos);
}

TEST(MeshFabric, APortInUseIsAnErrorOfTheUser) {
  const Hub hub(test::hub_for(2));
  const std::string port = std::to_string(hub.port());
  Rendezvous at = loopback(hub, 0, 2);
  at.hosts = true;
  expect_error<ConfigError>([&] { MeshFabric net(at); }, {port, "in use", "--master-port"});
}

TEST(MeshFabric, AMissingRendezvousIsNamedByItsAddress) {
  Rendezvous at = loopback(Hub(test::hub_for(2)), 1, 2);  // it is gone when we come
  at.join_timeout_seconds = 1;
  expect_error<FabricError>([&] { MeshFabric net(at); },
                            {"127.0.0.1:" + std::to_string(at.master_port), "--master-addr"});
}

TEST(MeshFabric, AnUnknownInterfaceIsAnErrorOfTheUserOnAllRanks) {
  const Hub hub(test::hub_for(2));
  Rendezvous at = loopback(hub, 0, 2);
  at.interface = "nosuch0";
  std::exception_ptr other_error;
  std::thread other([&] {
    try {
      MeshFabric net(loopback(hub, 1, 2));
    } catch (...) {
      other_error = std::current_exception();
    }
  });
  expect_error<ConfigError>([&] { MeshFabric net(at); }, {"nosuch0"});
  other.join();
  const std::string text = message_of<ConfigError>(other_error);
  EXPECT_NE(text.find("rank 0"), std::string::npos) << text;
  EXPECT_NE(text.find("nosuch0"), std::string::npos) << text;
}

TEST(MeshFabric, LongSumsEqualThoseInRankOrderBitForBit) {
  for (const int size : {2, 3, 4}) {
    for (const std::size_t count : {std::size_t{40000}, std::size_t{1000003}}) {
      Floats want = values_of(0, count);
      for (int r = 1; r < size; ++r) {
        const Floats more = values_of(r, count);
        for (std::size_t i = 0; i < count; ++i) want[i] += more[i];
      }
      for (const Floats& result : sums(size, count, Wire::kFp32)) {
        EXPECT_TRUE(same_bits(result, want)) << size << " ranks, " << count << " values";
      }
    }
  }
}

TEST(MeshFabric, MessagesToOneselfArrive) {
  run_ranks(2, [](MeshFabric& net) {
    const std::string mine = "to myself";
    std::string got(mine.size(), '-');
    InFlight send = net.send(net.rank(), 7, bytes_of(mine).first(3), bytes_of(mine).subspan(3));
    net.recv(net.rank(), 7, std::as_writable_bytes(std::span(got))).wait();
    send.wait();
    EXPECT_EQ(got, mine);
  });
}

// What comes before its receive is kept up to the window; more waits at the sender, and nothing is lost.
TEST(MeshFabric, ManyLargeMessagesBeforeTheirReceivesAllArrive) {
  static constexpr std::size_t kMessages = 40, kCount = 1 << 20;  // 160 MiB, ten times the window
  run_ranks(2, [](MeshFabric& net) {
    if (net.rank() == 0) {
      std::vector<Floats> values;
      std::vector<InFlight> sends;
      for (std::size_t m = 0; m < kMessages; ++m) values.emplace_back(kCount, static_cast<float>(m));
      for (const Floats& v : values) sends.push_back(net.send(1, 4, std::as_bytes(std::span(v))));
      float ready = 1;
      net.sum(std::span(&ready, 1)).wait();  // overtakes nothing: it is in the same lane, and short
      for (InFlight& send : sends) send.wait();
      return;
    }
    Floats got(kCount);
    for (std::size_t m = 0; m < kMessages; ++m) {
      net.recv(0, 4, std::as_writable_bytes(std::span(got))).wait();
      ASSERT_EQ(got, Floats(kCount, static_cast<float>(m)));
    }
    float ready = 1;
    net.sum(std::span(&ready, 1)).wait();
  });
}

TEST(MeshFabric, SeveralConnectionsToAPeerCarryTheSame) {
  const Hub hub(test::hub_for(3));
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      Rendezvous at = loopback(hub, r, 3);
      at.streams = 3;
      MeshFabric net(at);
      Floats values = values_of(r, 700001);
      net.sum(values).wait();
      Floats want = values_of(0, 700001);
      for (int q = 1; q < 3; ++q) {
        const Floats more = values_of(q, 700001);
        for (std::size_t i = 0; i < want.size(); ++i) want[i] += more[i];
      }
      EXPECT_TRUE(same_bits(values, want));
      float done = 1;
      net.sum(std::span(&done, 1)).wait();
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(MeshFabric, AnEncryptedJobSumsTheSameAndRefusesAnotherSecret) {
  HubOptions options = test::hub_for(2);
  options.key = key_of("the quick brown fox jumps");
  options.encrypted = true;
  const Hub hub(options);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Rendezvous at = loopback(hub, r, 2);
      at.key = options.key;
      at.encrypted = true;
      if (r == 1) {  // a stranger comes first, and changes nothing
        Rendezvous stranger = at;
        stranger.key = key_of("another secret altogether");
        expect_error<FabricError>([&] { MeshFabric net(stranger); }, {"secret"});
      }
      MeshFabric net(at);
      Floats values = values_of(r, 300000);
      net.sum(values).wait();
      Floats want = values_of(0, 300000);
      const Floats more = values_of(1, 300000);
      for (std::size_t i = 0; i < want.size(); ++i) want[i] += more[i];
      EXPECT_TRUE(same_bits(values, want));
      float done = 1;
      net.sum(std::span(&done, 1)).wait();
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(MeshFabric, OperationsMayOutliveTheFabric) {
  std::string got(10, '-');
  std::vector<InFlight> left;
  run_ranks(2, [&](MeshFabric& net) {
    float one = 1;
    net.sum(std::span(&one, 1)).wait();
    if (net.rank() == 0) left.push_back(net.recv(1, 3, std::as_writable_bytes(std::span(got))));
  });
  EXPECT_THROW(left[0].wait(), FabricError);
}

// Three ranks of an elastic job; rank 1 leaves without a word after its first sum, as a crash would have it.
TEST(MeshFabric, TheOthersOfAnElasticJobGoOnInANewGroup) {
  HubOptions options = test::hub_for(3);
  options.elastic = {1, 3};
  const Hub hub(options);
  std::vector<std::vector<float>> sums(3);
  std::latch all_have_summed(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Rendezvous at = loopback(hub, rank, 3);
      at.min_workers = 1;
      at.max_workers = 3;
      MeshFabric net(at);
      auto& mine = sums[static_cast<std::size_t>(rank)];
      float value = static_cast<float>(1 << rank);
      net.sum(std::span(&value, 1)).wait();
      mine.push_back(value);
      all_have_summed.arrive_and_wait();
      if (rank == 1) return net.announce("rank 1 has no more memory");
      try {
        for (int round = 0; round < 1000; ++round) {
          Floats more(100'000, 1.0F);
          net.sum(more).wait();
        }
        ADD_FAILURE() << "rank " << rank << " did not notice";
      } catch (const GroupFailed& e) {
        EXPECT_NE(std::string(e.what()).find("rank 1"), std::string::npos) << e.what();
      }
      net.holds_training();
      net.regroup();
      EXPECT_EQ(net.size(), 2);
      EXPECT_EQ(net.rank(), rank == 0 ? 0 : 1);
      EXPECT_EQ(net.mesh().epoch(), 2U);
      EXPECT_EQ(net.mesh().seats(), "0, 2");
      value = static_cast<float>(1 << rank);
      net.sum(std::span(&value, 1)).wait();
      mine.push_back(value);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums[0], (Floats{7, 5}));
  EXPECT_EQ(sums[1], (Floats{7}));
  EXPECT_EQ(sums[2], (Floats{7, 5}));
}

TEST(MeshFabric, OneOfAnElasticJobLearnsThatAnotherWaitsAndTheyMeet) {
  HubOptions options = test::hub_for(1);
  options.elastic = {1, 2};
  Hub hub(options);
  const auto at = [&hub](int rank) {
    Rendezvous at = loopback(hub, rank, 1);
    at.min_workers = 1;
    at.max_workers = 2;
    return at;
  };
  MeshFabric first(at(0));
  EXPECT_EQ(first.size(), 1);
  EXPECT_FALSE(first.somebody_waits_to_join());
  std::thread newcomer([&] {
    MeshFabric second(at(5));
    EXPECT_EQ(second.rank(), 1);
    EXPECT_EQ(second.size(), 2);
    float value = 1;
    second.sum(std::span(&value, 1)).wait();
    EXPECT_EQ(value, 3);
  });
  for (int i = 0; i < 1000 && !first.somebody_waits_to_join(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(first.somebody_waits_to_join());
  first.holds_training();
  first.regroup();
  EXPECT_EQ(first.rank(), 0);
  EXPECT_EQ(first.size(), 2);
  float value = 2;
  first.sum(std::span(&value, 1)).wait();
  EXPECT_EQ(value, 3);
  newcomer.join();
}

TEST(MeshFabric, WhoComesTooLateIsToldThatTheJobIsOver) {
  HubOptions options = test::hub_for(1);
  options.elastic = {1, 2};
  Hub hub(options);
  hub.job_is_over();
  Rendezvous at = loopback(hub, 0, 1);
  at.min_workers = 1;
  at.max_workers = 2;
  EXPECT_THROW(MeshFabric{at}, JobOver);
}

TEST(MeshFabric, AJobThatIsNotElasticCannotRegroup) {
  MeshFabric alone{Rendezvous{}};
  expect_error<ConfigError>([&] { alone.regroup(); }, {"--elastic"});
}

}  // namespace
}  // namespace slipstream
