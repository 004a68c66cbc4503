// SPDX-License-Identifier: Apache-2.0
//
// Workers and servers together in a SimWorld: how a model is shared out, and that no order of events, slow link or lost
// process changes or hides anything.
#include "server/client.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "kit/sim.h"

namespace slipstream {
namespace {

using test::sim_job;
using test::Variant;

TEST(ServerPlan, SharesAreContiguousAndOfEqualSizeAndNothingIsLeftOut) {
  for (const std::vector<std::size_t>& cuts :
       {std::vector<std::size_t>{0, 1000}, {0, 3, 3, 700, 701, 1000}, {0, 1}, {0, 0}, {}}) {
    for (int servers : {1, 2, 3, 7}) {
      for (std::size_t max_bytes : {4, 40, 1 << 20}) {
        const auto parts = ServerClient::plan(cuts, servers, max_bytes);
        std::vector<std::size_t> share(static_cast<std::size_t>(servers));
        std::vector<std::uint32_t> next(share.size());
        std::size_t at = 0;
        int server = 0;
        for (const ServerPart& part : parts) {
          EXPECT_EQ(part.offset, at);
          EXPECT_GE(part.server, server);
          EXPECT_GT(part.count, 0U);
          EXPECT_LE(part.count * sizeof(float), max_bytes);
          EXPECT_EQ(part.index, next[static_cast<std::size_t>(part.server)]++);
          for (std::size_t cut : cuts) EXPECT_TRUE(cut <= at || cut >= at + part.count) << "cut at " << cut;
          at += part.count;
          server = part.server;
          share[static_cast<std::size_t>(server)] += part.count;
        }
        EXPECT_EQ(at, cuts.empty() ? 0 : cuts.back());
        const auto [least, most] = std::minmax_element(share.begin(), share.end());
        EXPECT_LE(*most - *least, 1U);
      }
    }
  }
}

// All workers and servers but the lost one end in an error; workers' names it.
void expect_named(const SimJobResult& result, int workers, int lost) {
  for (int r = 0; r < workers; ++r) {
    const RankOutcome& outcome = result.ranks[static_cast<std::size_t>(r)].outcome;
    EXPECT_EQ(outcome.kind, RankOutcome::Kind::kFailed) << "worker " << r;
    EXPECT_TRUE(test::names_rank(outcome.error, lost)) << outcome.error;
  }
  for (std::size_t s = 0; s < result.servers.size(); ++s) {
    const bool is_lost = static_cast<int>(s) + workers == lost;
    EXPECT_EQ(result.servers[s].outcome.kind, is_lost ? RankOutcome::Kind::kCrashed : RankOutcome::Kind::kFailed) << s;
  }
}

TEST(Server, ThatIsLostIsAnErrorThatNamesItOnAllOthers) {
  for (int lost : {3, 4}) {
    for (double share : {0.1, 0.4, 0.8}) {
      auto job = sim_job(Variant{"bsp", {}}, 3);
      job.servers = 2;
      job.world.faults = {Fault::crash(lost, FaultPoint::at_time(share * run_sim_job(job).seconds))};
      expect_named(run_sim_job(job), 3, lost);
    }
  }
}

TEST(Server, WhoseMessageIsLostEndsTheJob) {
  auto job = sim_job(Variant{"bsp", {}}, 2);
  job.servers = 1;
  job.world.faults = {Fault::drop(1, 2, FaultPoint::at_step(4))};
  const auto result = run_sim_job(job);
  for (const SimRankResult& rank : result.ranks) EXPECT_FALSE(rank.outcome.finished());
}

// Links of all speeds, stragglers, frozen workers and servers, by seed.
SimJobOptions random_schedule(SimJobOptions job, std::uint64_t seed) {
  Rng rng(seed);
  const int ranks = job.world.ranks, all = ranks + job.servers;
  job.world.seed = seed;
  for (int r = 0; r < ranks; ++r) job.compute_factors.push_back(std::exp(3 * rng.uniform() - 1));
  for (int i = 0; i < 3; ++i) {
    const int from = static_cast<int>(rng.below(static_cast<std::uint64_t>(all)));
    const int to = static_cast<int>(rng.below(static_cast<std::uint64_t>(all)));
    if (from != to) job.world.pair_links[{from, to}] = {0.02 * rng.uniform(), 2'000 * std::exp(5 * rng.uniform())};
  }
  const int slow = static_cast<int>(rng.below(static_cast<std::uint64_t>(all)));
  job.world.faults = {Fault::slow_rank(slow, 1 + 10 * rng.uniform(), FaultPoint::at_time(0.1 * rng.uniform()),
                                       FaultPoint::at_time(0.1 + 0.1 * rng.uniform())),
                      Fault::freeze(slow, FaultPoint::at_time(0.2 * rng.uniform()), 0.3 * rng.uniform())};
  return job;
}

// Whatever the times: no deadlock, all pushes counted once and in order (or the server refuses), the same bits. Where
// updates come in the order of arrival, W_T = W_0 - sum of all gradients' shares still has each gradient once.
TEST(Server, AThousandRandomSchedulesKeepTheInvariants) {
  std::vector<Variant> tried;
  const Registry registry = Registry::builtin();
  for (const StrategyInfo& info : registry.all()) {
    if (info.configure().make()->needs_servers()) tried.push_back({info.name, {}});
  }
  std::map<std::tuple<std::string, int, int>, SimJobResult> usual;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    const Variant& variant = tried[seed % tried.size()];
    const int ranks = 1 + static_cast<int>(seed / 7 % 4), servers = static_cast<int>(seed / 3 % 4);
    auto job = sim_job(variant, ranks, 9);
    job.servers = servers;
    auto& expected = usual[{variant.strategy, ranks, servers}];
    if (expected.ranks.empty()) expected = run_sim_job(job);
    SCOPED_TRACE(fmt::format("{}, P={}, S={}, seed {}", variant.name(), ranks, servers, seed));
    const auto result = run_sim_job(random_schedule(job, seed));
    ASSERT_TRUE(result.agreement());
    for (const SimServerResult& server : result.servers) ASSERT_TRUE(server.outcome.finished());
    if (!variant.configure().follows_clock()) test::expect_same_weights(result, expected);
  }
}

}  // namespace
}  // namespace slipstream
