// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_faults.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include "sim/sim_world.h"

namespace slipstream {
namespace {

using Kind = RankOutcome::Kind;

SimWorldOptions world_of(int ranks, std::vector<Fault> faults) {
  SimWorldOptions options;
  options.ranks = ranks;
  options.link = {0.0, 1000.0};
  options.faults = std::move(faults);
  return options;
}

void three_steps(SimPort& port) {
  for (int t = 0; t < 3; ++t) {
    port.mark_step(t);
    port.compute(1.0);
    std::vector<float> values(10);
    port.sum(values).wait();
  }
}

std::span<std::byte> bytes_of(std::string& text) { return std::as_writable_bytes(std::span(text)); }

TEST(SimFaults, ACrashAtAStepFailsTheOthersNamingTheRankAndTheOperation) {
  const auto outcomes = SimWorld(world_of(3, {Fault::crash(1, FaultPoint::at_step(1))})).run(three_steps);
  const double step_s = 1.0 + 2 * 40.0 / 1000.0;
  EXPECT_EQ(outcomes[1].kind, Kind::kCrashed);
  EXPECT_DOUBLE_EQ(outcomes[1].ended_at, step_s);
  for (int r : {0, 2}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(r)];
    EXPECT_EQ(outcome.kind, Kind::kFailed);
    EXPECT_NE(outcome.error.find("sum of 40 bytes: rank 1 did not take part within 60 s"), std::string::npos)
        << outcome.error;
    EXPECT_DOUBLE_EQ(outcome.ended_at, step_s + 1.0 + 60.0);
  }
}

TEST(SimFaults, ACrashInMidSumBreaksIt) {
  const auto options = world_of(3, {Fault::crash(2, FaultPoint::at_time(0.05))});
  const auto outcomes = SimWorld(options).run([](SimPort& port) {
    std::vector<float> values(30, 1.0F);
    port.sum(values).wait();  // takes 0.24 s
  });
  EXPECT_EQ(outcomes[2].kind, Kind::kCrashed);
  EXPECT_DOUBLE_EQ(outcomes[2].ended_at, 0.05);
  EXPECT_NE(outcomes[0].error.find("rank 2 did not take part"), std::string::npos) << outcomes[0].error;
}

TEST(SimFaults, ACrashUnwindsARankWithOperationsInFlight) {
  bool unwound = false;
  struct Flag {
    bool& flag;
    ~Flag() { flag = true; }
  };
  const auto options = world_of(2, {Fault::crash(0, FaultPoint::at_time(0.5))});
  const auto outcomes = SimWorld(options).run([&](SimPort& port) {
    if (port.rank() != 0) return;
    const Flag flag{unwound};
    std::vector<float> values(4);
    std::string text = "abc";
    InFlight sum = port.sum(values), recv = port.recv(1, 0, bytes_of(text));
    port.compute(10.0);
  });
  EXPECT_TRUE(unwound);
  EXPECT_DOUBLE_EQ(outcomes[0].ended_at, 0.5);
  EXPECT_EQ(outcomes[1].kind, Kind::kFinished);
}

TEST(SimFaults, SeveralMissingRanksAreAllNamed) {
  const auto outcomes =
      SimWorld(world_of(4, {Fault::crash(1, FaultPoint::at_step(2)), Fault::crash(3, FaultPoint::at_step(2))}))
          .run(three_steps);
  EXPECT_NE(outcomes[0].error.find("ranks 1, 3 did not take part"), std::string::npos) << outcomes[0].error;
}

TEST(SimFaults, ARankThatComesTooLateLearnsWhoGaveUp) {
  const auto outcomes = SimWorld(world_of(2, {})).run([](SimPort& port) {
    port.compute(port.rank() * 100.0);
    std::vector<float> values(1);
    port.sum(values).wait();
  });
  EXPECT_NE(outcomes[0].error.find("rank 1 did not take part"), std::string::npos) << outcomes[0].error;
  EXPECT_DOUBLE_EQ(outcomes[0].ended_at, 60.0);
  EXPECT_NE(outcomes[1].error.find("rank 0 did not take part"), std::string::npos) << outcomes[1].error;
}

TEST(SimFaults, AFreezeDelaysTheOthersByItsLength) {
  for (const FaultPoint at : {FaultPoint::at_step(1), FaultPoint::at_time(0.5)}) {
    const auto outcomes = SimWorld(world_of(2, {Fault::freeze(1, at, 20.0)})).run(three_steps);
    EXPECT_EQ(outcomes[0].kind, Kind::kFinished);
    EXPECT_DOUBLE_EQ(outcomes[0].ended_at, 3 * 1.04 + 20.0);
  }
}

TEST(SimFaults, AFrozenRankMissesTheTimeout) {
  const auto outcomes = SimWorld(world_of(2, {Fault::freeze(1, FaultPoint::at_step(1), 70.0)})).run(three_steps);
  EXPECT_NE(outcomes[0].error.find("rank 1 did not take part within 60 s"), std::string::npos) << outcomes[0].error;
}

TEST(SimFaults, ADroppedMessageFailsItsOwnRecvOnly) {
  const auto options = world_of(2, {Fault::drop(0, 1, FaultPoint::at_time(0.0), 2)});
  std::string got;
  const auto outcomes = SimWorld(options).run([&](SimPort& port) {
    for (char c : {'a', 'b', 'c'}) {
      std::string text(1, c);
      if (port.rank() == 0) {
        port.send(1, 0, bytes_of(text)).wait();
        continue;
      }
      text = "?";
      try {
        port.recv(0, 0, bytes_of(text)).wait();
      } catch (const FabricError& error) {
        EXPECT_NE(std::string(error.what()).find("nothing came from rank 0 within 60 s"), std::string::npos);
      }
      got += text;
    }
  });
  EXPECT_EQ(got, "a?c");
  EXPECT_EQ(outcomes[0].kind, Kind::kFinished);
}

TEST(SimFaults, ASlowRankSlowsEverySumWhileItLasts) {
  const auto fault = Fault::slow_rank(0, 10.0, FaultPoint::at_step(1), FaultPoint::at_step(2));
  const auto outcomes = SimWorld(world_of(2, {fault})).run(three_steps);
  EXPECT_DOUBLE_EQ(outcomes[1].ended_at, 3.0 + 0.04 + 0.4 + 0.04);
}

TEST(SimFaults, ASlowPairSlowsOneDirection) {
  double ends[2] = {0, 0};
  const auto fault = Fault::slow_pair(0, 1, 10.0, FaultPoint::at_time(0.0));
  SimWorld(world_of(2, {fault})).run([&](SimPort& port) {
    std::string out(100, 'x'), in(100, '.');
    port.compute(1.0);
    InFlight send = port.send(1 - port.rank(), 0, bytes_of(out));
    port.recv(1 - port.rank(), 0, bytes_of(in)).wait();
    ends[port.rank()] = port.clock().now();
    send.wait();
  });
  EXPECT_DOUBLE_EQ(ends[0], 1.1);
  EXPECT_DOUBLE_EQ(ends[1], 2.0);
}

TEST(SimFaults, APartitionShowsEachSideTheOther) {
  const auto outcomes = SimWorld(world_of(4, {Fault::partition({0, 3}, FaultPoint::at_time(1.5))})).run(three_steps);
  for (int r : {0, 3}) EXPECT_NE(outcomes[static_cast<std::size_t>(r)].error.find("ranks 1, 2 did"), std::string::npos);
  for (int r : {1, 2}) EXPECT_NE(outcomes[static_cast<std::size_t>(r)].error.find("ranks 0, 3 did"), std::string::npos);
}

TEST(SimFaults, APartitionLosesWhatIsUnderWayAndHeals) {
  const auto fault = Fault::partition({0}, FaultPoint::at_time(0.05), FaultPoint::at_time(100.0));
  std::string got = ".";
  const auto outcomes = SimWorld(world_of(2, {fault})).run([&](SimPort& port) {
    std::string large(100, 'x'), small = "y";
    if (port.rank() == 0) {
      EXPECT_THROW(port.send(1, 0, bytes_of(large)).wait(), FabricError);
      port.compute(100.0);
      port.send(1, 1, bytes_of(small)).wait();
    } else {
      EXPECT_THROW(port.recv(0, 0, bytes_of(large)).wait(), FabricError);
      port.compute(60.0);
      port.recv(0, 1, bytes_of(got)).wait();
    }
  });
  EXPECT_EQ(got, "y");
  EXPECT_TRUE(outcomes[0].finished() && outcomes[1].finished());
}

TEST(SimFaults, ASendToADeadRankFails) {
  const auto outcomes = SimWorld(world_of(2, {Fault::crash(1, FaultPoint::at_time(0.0))})).run([](SimPort& port) {
    port.compute(1.0);
    std::string text = "abc";
    port.send(1, 4, bytes_of(text)).wait();
  });
  EXPECT_NE(outcomes[0].error.find("send of 3 bytes to rank 1 (tag 4): rank 1 did not take it within 60 s"),
            std::string::npos)
      << outcomes[0].error;
}

// Whatever goes wrong, a run ends, and ends the same way every time.
TEST(SimFaults, RandomScriptsEndAndRepeat) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    std::vector<Fault> faults;
    for (std::uint64_t i = 0; i < 1 + rng.below(3); ++i) {
      const int rank = static_cast<int>(rng.below(4)), other = (rank + 1 + static_cast<int>(rng.below(3))) % 4;
      const FaultPoint at = rng.below(2) == 0 ? FaultPoint::at_step(static_cast<std::int64_t>(rng.below(4)))
                                              : FaultPoint::at_time(rng.uniform(0, 4));
      switch (rng.below(5)) {
        case 0:
          faults.push_back(Fault::crash(rank, at));
          break;
        case 1:
          faults.push_back(Fault::freeze(rank, at, rng.uniform(0, 90)));
          break;
        case 2:
          faults.push_back(Fault::drop(rank, other, at, 1 + static_cast<std::int64_t>(rng.below(3))));
          break;
        case 3:
          faults.push_back(Fault::slow_pair(rank, other, rng.uniform(1, 50), at));
          break;
        default:
          faults.push_back(Fault::partition({rank, other}, at));
      }
    }
    auto options = world_of(4, faults);
    options.seed = seed;
    options.record_events = true;
    const auto body = [](SimPort& port) {
      std::vector<float> values(20, 1.0F);
      std::string in(30, '.'), out(30, 'x');
      for (int t = 0; t < 4; ++t) {
        port.mark_step(t);
        InFlight recv = port.recv((port.rank() + 3) % 4, 1, bytes_of(in));
        InFlight send = port.send((port.rank() + 1) % 4, 1, bytes_of(out));
        port.compute(0.5 + 0.1 * port.rank());
        InFlight sum = port.sum(values);
        recv.wait();
        send.wait();
        sum.wait();
      }
    };
    SimWorld first(options), second(options);
    EXPECT_EQ(first.run(body), second.run(body)) << "seed " << seed;
    EXPECT_EQ(first.events(), second.events()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace slipstream
