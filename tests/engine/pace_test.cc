// SPDX-License-Identifier: Apache-2.0
#include "engine/pace.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <random>

#include "fabric/forwarding_fabric.h"
#include "fabric/loopback.h"

namespace slipstream {
namespace {

using test::run_ranks;

// What one rank did: the steps it took, and which of them without data.
struct Taken {
  std::int64_t t = 0;
  std::vector<std::int64_t> without_data;
};

// A step that needs all ranks (`together`) or none.
void take_step(Fabric& net, bool together) {
  if (!together) return;
  float one = 1;
  net.sum({&one, 1}).wait();
  ASSERT_EQ(one, static_cast<float>(net.size()));
}

void train(Fabric& net, Pace& pace, Taken& taken, int batches, bool together) {
  for (int b = 0; b < batches; ++b) {
    pace.begins(taken.t);
    take_step(net, together);
    ++taken.t;
  }
  while (pace.someone_goes_on(taken.t)) {
    taken.without_data.push_back(taken.t);
    take_step(net, together);
    ++taken.t;
  }
}

std::vector<std::int64_t> range(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> all;
  for (std::int64_t t = first; t < end; ++t) all.push_back(t);
  return all;
}

// Many rounds, of random lengths, with steps in which ranks wait for each other and others in which they run apart.
TEST(Pace, AllRanksComeToTheNumberOfStepsOfTheLongest) {
  for (const int size : {2, 3, 4}) {
    constexpr int kRounds = 150;
    std::mt19937 random(static_cast<unsigned>(size));
    std::vector<std::vector<int>> lengths(kRounds, std::vector<int>(static_cast<std::size_t>(size)));
    for (auto& round : lengths) {
      for (int& length : round) length = static_cast<int>(random() % 6);
    }
    run_ranks(size, [&](MeshFabric& net) {
      Pace pace(net);
      Taken taken;
      for (int r = 0; r < kRounds; ++r) {
        const auto& round = lengths[static_cast<std::size_t>(r)];
        const int mine = round[static_cast<std::size_t>(net.rank())];
        const std::int64_t began = taken.t, wanted = began + *std::max_element(round.begin(), round.end());
        taken.without_data.clear();
        train(net, pace, taken, mine, r % 3 != 0);
        ASSERT_EQ(taken.t, wanted) << "round " << r << " of " << size << " ranks";
        ASSERT_EQ(taken.without_data, range(began + mine, wanted));
      }
    });
  }
}

// A rank that has ended waits for the answer of one that is inside a step and waits for it.
TEST(Pace, ARankInsideAStepThatWaitsForTheOtherIsHeard) {
  run_ranks(2, [&](MeshFabric& net) {
    Pace pace(net);
    std::byte token{};
    if (net.rank() == 0) {
      pace.begins(0);
      net.send(1, 7, std::span(&token, 1)).wait();
      net.recv(1, 8, std::span(&token, 1)).wait();  // the step: rank 1's part in it
      EXPECT_FALSE(pace.someone_goes_on(1));
    } else {
      net.recv(0, 7, std::span(&token, 1)).wait();  // rank 0 is in step 0, and knows nothing of our end
      EXPECT_TRUE(pace.someone_goes_on(0));
      net.send(0, 8, std::span(&token, 1)).wait();
      EXPECT_FALSE(pace.someone_goes_on(1));
    }
  });
}

// Counts what is sent through it.
class CountingFabric final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;
  InFlight sum(std::span<float> values, Wire wire) override { return ++operations, inner().sum(values, wire); }
  InFlight gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return ++operations, inner().gather(mine, all);
  }
  InFlight send(int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more) override {
    return ++operations, inner().send(to, tag, bytes, more);
  }
  InFlight recv(int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) override {
    return ++operations, inner().recv(from, tag, bytes, more);
  }

  int operations = 0;
};

TEST(Pace, StepsOfEqualLengthsExchangeNothing) {
  run_ranks(3, [&](MeshFabric& net) {
    CountingFabric counted(net);
    Pace pace(counted);
    std::int64_t t = 0;
    for (int round = 0; round < 50; ++round) {  // ranks run apart: some have ended while others have steps to take
      counted.operations = 0;
      for (const std::int64_t end = t + 20; t < end; ++t) pace.begins(t);
      ASSERT_EQ(counted.operations, 0);
      ASSERT_FALSE(pace.someone_goes_on(t));
      ASSERT_LE(counted.operations, 2 * (2 + 2));  // to and from each peer: an end and an answer, a last word
    }
  });
}

// Rank 1 gives its session up where rank 0 has ended and waits: what is left of it must not reach the next one.
TEST(Pace, LettersOfASessionThatWasGivenUpAreIgnored) {
  run_ranks(2, [&](MeshFabric& net) {
    std::byte token{};
    {
      Pace given_up(net);
      if (net.rank() == 1) {
        given_up.begins(0);
        net.send(0, 7, std::span(&token, 1)).wait();
        net.recv(0, 8, std::span(&token, 1)).wait();
        for (std::int64_t t = 1; t < 5; ++t) given_up.begins(t);  // nobody reads that
      } else {
        net.recv(1, 7, std::span(&token, 1)).wait();
        EXPECT_TRUE(given_up.someone_goes_on(0));
        net.send(1, 8, std::span(&token, 1)).wait();
      }
    }
    Pace pace(net);
    Taken taken;
    train(net, pace, taken, net.rank() == 0 ? 1 : 2, true);
    EXPECT_EQ(taken.t, 2);
  });
}

TEST(Pace, ARankThatLeavesInsteadOfEndingIsNamed) {
  const Hub hub(test::hub_for(3));
  const auto errors = run_ranks(hub, 3, [&](MeshFabric& net) {
    Pace pace(net);
    if (net.rank() == 2) return;  // leaves the job
    Taken taken;
    train(net, pace, taken, 0, false);
  });
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_NE(test::message_of<FabricError>(errors[rank]).find("rank 2"), std::string::npos);
  }
}

// Ranks 1 and 2 are processes: one that is killed says no goodbye.
TEST(Pace, ARankThatIsKilledWhileOthersWaitIsNamed) {
  std::array<std::array<int, 2>, 3> pipes{};  // tell the rank the port of the rendezvous
  std::array<pid_t, 3> children{};
  const auto wait_for_rank_1 = [](MeshFabric& net) -> std::string {
    try {
      Pace pace(net);
      if (net.rank() == 1) raise(SIGKILL);
      pace.someone_goes_on(0);
    } catch (const FabricError& e) {
      return e.what();
    }
    return "";
  };
  Rendezvous at{.rank = 0, .size = 3, .timeout_seconds = 30, .join_timeout_seconds = 30};
  for (const int rank : {1, 2}) {
    auto& ends = pipes[static_cast<std::size_t>(rank)];
    ASSERT_EQ(pipe(ends.data()), 0);
    children[static_cast<std::size_t>(rank)] = fork();
    if (children[static_cast<std::size_t>(rank)] != 0) continue;
    at.rank = rank;
    if (read(ends[0], &at.master_port, sizeof at.master_port) != sizeof at.master_port) _exit(1);
    std::string text;
    {
      MeshFabric net(at);
      text = wait_for_rank_1(net);
    }
    _exit(text.find("rank 1") == std::string::npos ? 1 : 0);
  }
  at.hosts = true;
  at.master_port = 0;
  {
    MeshFabric net(at, [&](int port) {
      for (const int rank : {1, 2}) {
        EXPECT_EQ(write(pipes[static_cast<std::size_t>(rank)][1], &port, sizeof port), ssize_t{sizeof port});
      }
    });
    const std::string text = wait_for_rank_1(net);
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  }
  int status = 0;
  EXPECT_EQ(waitpid(children[1], &status, 0), children[1]);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(waitpid(children[2], &status, 0), children[2]);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (const int rank : {1, 2}) {
    for (const int end : pipes[static_cast<std::size_t>(rank)]) close(end);
  }
}

TEST(Pace, AFailureElsewhereEndsTheWait) {
  const Hub hub(test::hub_for(2));
  const auto errors = run_ranks(hub, 2, [&](MeshFabric& net) {
    Pace pace(net);
    if (net.rank() == 0) {
      pace.someone_goes_on(0);
      ADD_FAILURE() << "rank 1 neither began nor ended";
    } else {
      net.announce("rank 1 has had enough");
    }
  });
  EXPECT_NE(test::message_of<FabricError>(errors[0]).find("had enough"), std::string::npos);
}

}  // namespace
}  // namespace slipstream
