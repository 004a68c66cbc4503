// SPDX-License-Identifier: Apache-2.0
//
// The mesh among strangers, liars and sleepers: real sockets on loopback, all ranks threads of this process.
#include "wire/mesh.h"

#include <atomic>
#include <future>

#include "base/rng.h"
#include "fabric/loopback.h"
#include "kit/fuzz.h"
#include "task/files.h"
#include "wire/raw_peer.h"

namespace slipstream {
namespace {

using test::Bytes;
using test::expect_error;
using test::hub_for;
using test::loopback;
using test::message_of;
using test::RawMember;
using test::RawPeer;
using test::run_ranks;
using test::Stranger;
using Kind = FrameHead::Kind;
using Floats = std::vector<float>;

const Key kKey = key_of("the secret of this job");
const Key kOtherKey = key_of("the secret of another job");

std::span<std::byte> writable(std::string& text) { return std::as_writable_bytes(std::span(text)); }
std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

Bytes random_bytes(Rng& rng, std::size_t size) {
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next());
  return bytes;
}

// A job of two ranks that adds up, again and again, until it is told to end.
class RunningJob {
 public:
  explicit RunningJob(bool encrypted) : hub_(options(encrypted)) {
    for (int rank = 0; rank < 2; ++rank) {
      threads_.emplace_back([this, rank, encrypted] {
        try {
          Rendezvous at = loopback(hub_, rank, 2);
          at.key = kKey;
          at.encrypted = encrypted;
          MeshFabric net(at);
          ports_[static_cast<std::size_t>(rank)].set_value(net.mesh().port());
          add_up(net);
        } catch (...) {
          errors_[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
    for (std::size_t rank : {0, 1}) port[rank] = ports_[rank].get_future().get();
    port[2] = hub_.port();
  }
  ~RunningJob() { end(); }

  // All its sums were right, and it ended well.
  void end() {
    go_on_ = false;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    for (const auto& error : std::exchange(errors_, {})) {
      if (error) ADD_FAILURE() << message_of<Error>(error);
    }
  }
  void wait_for_sums() {
    const int before = sums_;
    while (sums_ < before + 3) std::this_thread::yield();
  }

  std::array<int, 3> port{};  // of both ranks and of the hub

 private:
  static HubOptions options(bool encrypted) {
    HubOptions o = hub_for(2);
    o.key = kKey;
    o.encrypted = encrypted;
    return o;
  }

  void add_up(MeshFabric& net) {
    for (std::size_t count = 2;; count = count == 2 ? 60'000 : 2) {
      Floats values(count, static_cast<float>(net.rank() + 1));
      values[0] = go_on_ ? 0 : 1;
      net.sum(values).wait();
      ASSERT_EQ(Floats(values.begin() + 1, values.end()), Floats(count - 1, 3));
      ++sums_;
      if (values[0] > 0) return;  // the same on both
    }
  }

  const Hub hub_;
  std::atomic<bool> go_on_ = true;
  std::atomic<int> sums_ = 0;
  std::array<std::promise<int>, 2> ports_;
  std::array<std::exception_ptr, 2> errors_;
  std::vector<std::thread> threads_;
};

class MeshAmongStrangers : public testing::TestWithParam<bool> {
 protected:
  bool encrypted() const { return GetParam(); }
  RunningJob job{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Both, MeshAmongStrangers, testing::Bool(),
                         [](const auto& info) { return info.param ? "Encrypted" : "Plain"; });

TEST_P(MeshAmongStrangers, MoreThanMayWaitConnectSayNothingAndHold) {
  std::vector<Stranger> strangers;
  for (int i = 0; i < 100; ++i) {
    for (const int port : job.port) strangers.emplace_back(port);
  }
  job.wait_for_sums();
  for (int i = 0; i < 30; ++i) EXPECT_EQ(strangers[static_cast<std::size_t>(i)].hear_to_the_end(), 0U);  // shown out
  job.wait_for_sums();
  job.end();
}

TEST_P(MeshAmongStrangers, GarbageIsAnsweredWithAClosedDoor) {
  for (std::uint64_t seed = 0; seed < test::fuzz_seeds(30); ++seed) {
    for (const int port : job.port) {
      Rng rng(seed, static_cast<std::uint64_t>(port));
      Stranger stranger(port);
      const bool like_a_greeting = rng.below(3) == 0;
      Bytes garbage = random_bytes(rng, 1 + rng.below(5000));
      const std::string beginning(encrypted() ? "\x16\x03\x01" : "slps\1", encrypted() ? 3 : 6);
      if (like_a_greeting && garbage.size() >= 6) std::memcpy(garbage.data(), beginning.data(), beginning.size());
      stranger.say(garbage);
      shutdown(stranger.fd(), SHUT_WR);
      EXPECT_LT(stranger.hear_to_the_end(), 200U);
    }
  }
  job.wait_for_sums();
  job.end();
}

TEST_P(MeshAmongStrangers, MegabytesOfZerosAreNotRead) {
  const Bytes zeros(8 << 20);
  for (const int port : job.port) {
    Stranger stranger(port);
    EXPECT_FALSE(stranger.say(zeros));
  }
  job.wait_for_sums();
  job.end();
}

TEST_P(MeshAmongStrangers, FramesWithoutAGreetingAreNotLookedAt) {
  for (const int port : job.port) {
    Stranger stranger(port);
    const std::string text = "a stranger ends the job";
    const FrameHead head{.kind = Kind::kFailure, .epoch = port == job.port[2] ? 0U : 1U, .length = text.size()};
    stranger.say(head.pack());
    stranger.say(bytes_of(text));
    stranger.hear_to_the_end();
  }
  job.wait_for_sums();
  job.end();
}

TEST_P(MeshAmongStrangers, AWrongSecretIsRefusedOnBothSides) {
  for (const int port : job.port) {
    const Introduction mine{.epoch = port == job.port[2] ? 0U : 1U, .from = 1, .to = port == job.port[2] ? -1 : 0};
    expect_error<FabricError>([&] { RawPeer peer(port, kOtherKey, mine, encrypted() ? &kOtherKey : nullptr); },
                              {"secret"});
    if (encrypted()) {  // one that knows the secret of TLS, but not that of the greeting inside
      expect_error<FabricError>([&] { RawPeer peer(port, kOtherKey, mine, &kKey); }, {"secret"});
    }
  }
  job.wait_for_sums();
  job.end();
}

TEST_P(MeshAmongStrangers, ARecordedConversationIsWorthNothing) {
  Bytes recorded;
  {
    RawPeer member(job.port[2], kKey, {.epoch = 0, .from = 1, .to = Link::kHub}, encrypted() ? &kKey : nullptr);
    member.say(Kind::kBeat);
    member.say(Kind::kBye);
    recorded = member.said();
  }
  ASSERT_GE(recorded.size(), 56U + 32 + 48);
  for (const int port : job.port) {
    for (const std::size_t at_once : {std::size_t{1}, recorded.size()}) {
      Stranger stranger(port);
      for (std::size_t at = 0; at < recorded.size(); at += at_once) {
        if (!stranger.say(std::span(recorded).subspan(at, at_once))) break;
      }
      stranger.hear_to_the_end();
    }
  }
  job.wait_for_sums();
  job.end();
}

TEST_P(MeshAmongStrangers, AMemberOfAnotherEpochIsRefusedByName) {
  expect_error<FabricError>(
      [&] {
        RawPeer peer(job.port[2], kKey, {.epoch = 5, .from = 1, .to = Link::kHub}, encrypted() ? &kKey : nullptr);
      },
      {"epoch 5 was offered", "epoch 0"});
  job.wait_for_sums();
  job.end();
}

// A job of which rank 1 is ours. What rank 0 does, and how that ended.
std::exception_ptr rank_0_against(const std::function<void(RawMember&)>& rank_1,
                                  const std::function<void(MeshFabric&)>& rank_0, bool encrypted = false,
                                  double timeout_seconds = 30) {
  HubOptions options = hub_for(2);
  options.key = kKey;
  options.encrypted = encrypted;
  const Hub hub(options);
  std::exception_ptr error;
  std::thread thread([&] {
    try {
      Rendezvous at = loopback(hub, 0, 2);
      at.key = kKey;
      at.encrypted = encrypted;
      at.timeout_seconds = timeout_seconds;
      MeshFabric net(at);
      rank_0(net);
    } catch (...) {
      error = std::current_exception();
    }
  });
  try {
    RawMember member(hub.port(), kKey, 1, 2, encrypted);
    rank_1(member);
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
  thread.join();
  return error;
}

void waits_forever(MeshFabric& net) {
  std::string never(100, '-');
  net.recv(1, 3, writable(never)).wait();
}

FrameHead data(Tag tag, std::uint64_t number, std::uint64_t total, std::uint64_t offset = 0) {
  return {.kind = Kind::kData,
          .lane = static_cast<std::uint8_t>(lane_of(tag)),
          .tag = tag,
          .number = number,
          .total = total,
          .offset = offset};
}

TEST(Mesh, AFrameThatBreaksTheProtocolEndsTheJobNamingThePeerAndIsAnsweredWithTheReason) {
  const Bytes ten(10), piece(FrameHead::kPieceBytes);
  struct Case {
    std::function<void(RawPeer&)> says;
    std::string reason;
  };
  FrameHead other_lane = data(3, 0, 10);
  other_lane.lane = 1;
  FrameHead other_epoch{.kind = Kind::kBeat, .epoch = 9};
  const Case cases[] = {
      {[&](RawPeer& p) { p.say_raw(Bytes(48)); }, "it does not begin like one"},
      {[&](RawPeer& p) { p.say_raw(other_epoch.pack()); }, "it is of epoch 9, this job is in 1"},
      {[&](RawPeer& p) { p.say(Kind::kJoin, "0 1 x 1"); }, "a rank takes none of its kind"},
      {[&](RawPeer& p) { p.say(Kind::kRoster, "1 0 x"); }, "a rank takes none of its kind"},
      {[&](RawPeer& p) { p.say({.kind = Kind::kCredit, .number = 1}); }, "credit for 1 bytes where 0 were sent"},
      {[&](RawPeer& p) { p.say(other_lane, ten); }, "its tag belongs to the other lane"},
      {[&](RawPeer& p) { p.say(data(3, 0, 10), ten); }, "10 bytes came where 100 are received"},
      {[&](RawPeer& p) { p.say(data(4, 1 << 20, 10), ten); }, "where 0 comes next"},
      {[&](RawPeer& p) {
         for (int i = 0; i < 2; ++i) p.say(data(4, 0, 10), ten);
       },
       "its bytes were here before"},
      {[&](RawPeer& p) {
         for (std::uint64_t n = 0; n < 300; ++n) p.say(data(4, n, piece.size()), piece);
       },
       "more bytes are under way than the window"},
  };
  for (const Case& one : cases) {
    for (const bool encrypted : {false, true}) {
      std::string told;
      const auto error = rank_0_against(
          [&](RawMember& member) {
            const auto peer = member.connect(0);
            one.says(*peer);
            told = peer->failure();
          },
          waits_forever, encrypted);
      const std::string text = message_of<FabricError>(error);
      EXPECT_NE(text.find("rank 0"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
      EXPECT_NE(text.find(one.reason), std::string::npos) << text;
      EXPECT_EQ(told, text);
    }
  }
}

TEST(Mesh, RandomFramesOfAMemberNeverHangOrBreakAJob) {
  for (std::uint64_t seed = 0; seed < test::fuzz_seeds(25); ++seed) {
    const auto error = rank_0_against(
        [&](RawMember& member) {
          const auto peer = member.connect(0);
          Rng rng(seed);
          for (int i = 0; i < 300; ++i) {
            FrameHead head = data(static_cast<Tag>(rng.below(4)), rng.below(3), 1 + rng.below(200'000));
            head.epoch = member.roster().epoch;
            head.offset = rng.below(4) * FrameHead::kPieceBytes;
            head.length =
                std::min<std::uint64_t>(FrameHead::kPieceBytes, head.total - std::min(head.total, head.offset));
            if (rng.below(20) == 0) head.kind = static_cast<Kind>(1 + rng.below(9));
            auto bytes = head.pack();
            if (rng.below(50) == 0) bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.next());
            peer->say_raw(bytes);
            peer->say_raw(Bytes(head.length));
          }
          peer->say(Kind::kFailure, "enough");
          peer->failure();
        },
        waits_forever);
    EXPECT_TRUE(error != nullptr);
  }
}

TEST(Mesh, AMemberOfAnotherEpochOrForAnotherRankIsRefusedAndTheRightOneStillWelcome) {
  const auto error = rank_0_against(
      [](RawMember& member) {
        expect_error<FabricError>([&] { member.connect(0, {.epoch = 77, .from = 1, .to = 0}); },
                                  {"epoch 77 was offered, the other side is in epoch 1"});
        expect_error<FabricError>([&] { member.connect(0, {.epoch = 1, .from = 1, .to = 3}); },
                                  {"rank 3 was wanted, rank 0 answered"});
        for (const int from : {0, -1, 2, 1000}) {  // authenticated, but nobody whom rank 0 awaits
          std::string text;
          EXPECT_FALSE(member.connect(0, {.epoch = 1, .from = from, .to = 0})->hear(Kind::kBeat, text));
        }
        const auto peer = member.connect(0);
        peer->say(data(3, 0, 100), Bytes(100));
        peer->say(Kind::kBye);
        std::string text;
        peer->hear(Kind::kBye, text);
      },
      waits_forever);
  EXPECT_FALSE(error);
}

TEST(Mesh, APeerThatFreezesIsNamed) {
  for (const bool encrypted : {false, true}) {
    std::string told;
    const auto error = rank_0_against(
        [&](RawMember& member) {
          const auto peer = member.connect(0);
          told = peer->failure();  // silent until then
        },
        waits_forever, encrypted, 1.0);
    const std::string text = message_of<FabricError>(error);
    EXPECT_NE(text.find("rank 1 is lost: no sign of life"), std::string::npos) << text;
    EXPECT_NE(text.find("receive of 100 bytes from rank 1"), std::string::npos) << text;
    EXPECT_EQ(told, text);
  }
}

TEST(Mesh, APeerThatShowsLifeButDoesNothingIsNamedToo) {
  const auto error = rank_0_against(
      [&](RawMember& member) {
        const auto peer = member.connect(0);
        std::string text;
        while (peer->hear(Kind::kBeat, text)) peer->say(Kind::kBeat);
      },
      waits_forever, false, 2.0);
  const std::string text = message_of<FabricError>(error);
  EXPECT_NE(text.find("rank 0 waited 2 s for rank 1"), std::string::npos) << text;
}

TEST(Mesh, APeerThatClosesWithoutAGoodbyeIsNamed) {
  const auto error = rank_0_against([&](RawMember& member) { member.connect(0); }, waits_forever);
  const std::string text = message_of<FabricError>(error);
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
}

// What it said last counts, even where the connection breaks under what we are writing.
TEST(Mesh, TheLastWordsOfAPeerThatIsGoneAreHeard) {
  for (const bool encrypted : {false, true}) {
    const auto error = rank_0_against(
        [&](RawMember& member) {
          const auto peer = member.connect(0);
          peer->say(data(3, 0, 100), Bytes(100));
          peer->say(Kind::kFailure, "rank 1 has had enough");
        },  // and closes with much unread
        [](MeshFabric& net) {
          waits_forever(net);
          const Floats large(1 << 20);
          InFlight send = net.send(1, 4, std::as_bytes(std::span(large)));
          waits_forever(net);
        },
        encrypted);
    EXPECT_EQ(message_of<FabricError>(error), "rank 1 has had enough");
  }
}

TEST(Mesh, AnEndpointThatFailsWithLargeSendsHalfDoneEndsAndTheOtherHearsWhy) {
  for (const int streams : {1, 3}) {
    const Hub hub(hub_for(2));
    std::vector<std::exception_ptr> errors(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Rendezvous at = loopback(hub, rank, 2);
          at.streams = streams;
          MeshFabric net(at);
          if (rank == 1) {
            std::string one(1, '-');
            net.recv(0, kBackground | 2, writable(one)).wait();  // both are in the middle of it
            waits_forever(net);
          }
          const Floats large(16 << 20);  // four times the window: nobody takes it
          const std::string one = "1";
          InFlight send = net.send(1, 4, std::as_bytes(std::span(large)));
          InFlight second = net.send(1, kBackground | 2, bytes_of(one));
          second.wait();
          net.announce("rank 0 has had enough");
          send.wait();
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& error : errors) EXPECT_EQ(message_of<FabricError>(error), "rank 0 has had enough");
  }
}

TEST(Mesh, ARankMayLeaveWithoutTakingWhatItWasSent) {
  for (const std::size_t count : {std::size_t{10}, std::size_t{16} << 20}) {
    const Hub hub(hub_for(2));
    const auto errors = run_ranks(hub, 2, [&](MeshFabric& net) {
      const Floats values(count);
      float one = 1;
      if (net.rank() == 1) return net.sum(std::span(&one, 1)).wait();
      InFlight send = net.send(1, kBackground | 4, std::as_bytes(std::span(values)));
      net.sum(std::span(&one, 1)).wait();
      send.wait();
    });
    EXPECT_FALSE(errors[1]);
    if (count == 10) {
      EXPECT_FALSE(errors[0]);
    } else {
      const std::string text = message_of<FabricError>(errors[0]);
      EXPECT_NE(text.find("rank 1 is lost: it has left the job, and is still sent to"), std::string::npos) << text;
    }
  }
}

// With several connections goodbyes and ends overtake each other.
TEST(Mesh, LeavingInGoodOrderIsNoFailureHoweverManyConnections) {
  for (int round = 0; round < 20; ++round) {
    const Hub hub(hub_for(3));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        Rendezvous at = loopback(hub, rank, 3);
        at.streams = 4;
        MeshFabric net(at);
        float one = 1;
        net.sum(std::span(&one, 1)).wait();
        // The others leave now; rank 0 looks at them for a while.
        std::string mine = "me", got(2, '-');
        for (int i = 0; rank == 0 && i < 200; ++i) {
          InFlight send = net.send(0, 1, bytes_of(mine));
          net.recv(0, 1, writable(got)).wait();
          send.wait();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Mesh, OperationsThatAreNotWaitedForMayBeDestroyedInAnyOrder) {
  for (int order = 0; order < 4; ++order) {
    std::string got(1000, '-');
    Floats values(300'000, 1), small(10, 1);
    std::string mine(10, 'x'), all(20, '-');
    std::vector<InFlight> outside;
    run_ranks(2, [&](MeshFabric& net) {
      float one = 1;
      net.sum(std::span(&one, 1)).wait();
      if (net.rank() == 1) return;  // leaves
      std::vector<InFlight> inside;
      std::vector<InFlight>& operations = order % 2 == 0 ? inside : outside;
      operations.push_back(net.recv(1, 3, writable(got)));
      operations.push_back(net.sum(values));
      operations.push_back(net.sum(small));
      operations.push_back(net.gather(bytes_of(mine), writable(all)));
      if (order >= 2) net.announce("a failure in between");
    });
    for (InFlight& operation : outside) EXPECT_TRUE(operation.done());
  }
}

TEST(Mesh, WithdrawnOperationsRaceWithTheirArrival) {
  run_ranks(2, [](MeshFabric& net) {
    const std::string mine(200, 'x');
    for (int i = 0; i < 2000; ++i) {
      std::string got(200, '-');
      InFlight send = net.send(1 - net.rank(), 5, bytes_of(mine));
      { InFlight receive = net.recv(1 - net.rank(), 5, writable(got)); }  // given up at once
      send.wait();
    }
    float one = 1;
    net.sum(std::span(&one, 1)).wait();
    EXPECT_EQ(one, 2);
  });
}

TEST(Mesh, ACommandThatCannotBeEndsTheJobAndNotTheProcess) {
  const Hub hub(hub_for(2));
  const auto errors = run_ranks(hub, 2, [](MeshFabric& net) {
    std::string text(10, '-');
    if (net.rank() == 0) net.send(7, 1, bytes_of(text)).wait();
    net.recv(1 - net.rank(), 1, writable(text)).wait();
  });
  for (const auto& error : errors) {
    const std::string text = message_of<FabricError>(error);
    EXPECT_NE(text.find("a message for rank 7; there are 2 ranks"), std::string::npos) << text;
  }
}

TEST(Mesh, TheHubMayGoFirst) {
  for (const bool supervised : {false, true}) {
    auto hub = std::make_unique<Hub>(hub_for(2));
    std::promise<void> gone;
    const std::shared_future<void> future = gone.get_future().share();
    std::atomic<int> joined = 0;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        Rendezvous at = loopback(*hub, rank, 2);
        at.supervised = supervised;
        MeshFabric net(at);
        ++joined;
        future.wait();
        Floats values(100'000, 1);
        net.sum(values).wait();
        EXPECT_EQ(values, Floats(100'000, 2));
      });
    }
    while (joined < 2) std::this_thread::yield();
    hub.reset();
    gone.set_value();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Mesh, FailingAndListeningAfterTheEndReturn) {
  struct Silent final : Listener {
    void begins(int, Tag, const LetterHead&, std::uint64_t) override {}
    void failed(const std::string& text) override { told = text; }
    void arrived(int, Tag, const LetterHead&, std::span<const std::byte>, Answers&) override {}
    std::string told;
  } listener;
  std::shared_ptr<MeshCore> core;
  {
    MeshFabric net(Rendezvous{});
    core = net.core();
  }
  core->listen(1, &listener);
  EXPECT_EQ(listener.told, "rank 0 has left the job");
  core->listen(1, nullptr);
  core->fail("too late");
  EXPECT_EQ(core->failure, "rank 0 has left the job");
}

}  // namespace
}  // namespace slipstream
