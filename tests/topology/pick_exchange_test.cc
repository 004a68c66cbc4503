// SPDX-License-Identifier: Apache-2.0
#include "topology/pick_exchange.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <cmath>
#include <map>

#include "base/rng.h"
#include "fabric/metered_fabric.h"
#include "fabric/sim_world.h"
#include "fabric/wire.h"

namespace slipstream {
namespace {

const std::vector<std::pair<Wire, Way>> kWays = {{Wire::kFp32, Way::kOwners},
                                                 {Wire::kBf16, Way::kOwners},
                                                 {Wire::kFp32, Way::kEverybody},
                                                 {Wire::kBf16, Way::kEverybody}};

std::vector<float> values_of(int rank, std::size_t count, Wire wire) {
  Rng random(7, static_cast<std::uint64_t>(rank));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.normal());
  wire_round(wire, values);
  return values;
}

std::vector<double> sums_of(int ranks, std::size_t count, Wire wire) {
  std::vector<double> sums(count);
  for (int r = 0; r < ranks; ++r) {
    const auto values = values_of(r, count, wire);
    for (std::size_t j = 0; j < count; ++j) sums[j] += values[j];
  }
  return sums;
}

// By the definition: of the positions dealt to each rank in turn the largest, as many as it is dealt of the picks.
std::map<std::uint32_t, double> reference(const std::vector<double>& sums, std::size_t picks, std::size_t ranks) {
  std::map<std::uint32_t, double> all;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<std::uint32_t> share;
    for (std::size_t j = r; j < sums.size(); j += ranks) share.push_back(static_cast<std::uint32_t>(j));
    std::stable_sort(share.begin(), share.end(), [&](auto a, auto b) { return std::abs(sums[a]) > std::abs(sums[b]); });
    std::size_t n = 0;
    for (std::size_t j = r; j < picks; j += ranks) all[share[n]] = sums[share[n]], ++n;
  }
  return all;
}

std::vector<RankOutcome> run(int ranks, const std::function<void(SimPort&)>& body) {
  SimWorldOptions options;
  options.ranks = ranks;
  SimWorld world(options);
  return world.run(body);
}

TEST(PickExchange, EveryRankHoldsTheLargestSumsOfEveryShare) {
  for (const auto& [wire, way] : kWays) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      for (const auto& [count, picks] : {std::pair<std::size_t, std::size_t>{0, 0},
                                         {1, 1},
                                         {5, 5},
                                         {5, 2},
                                         {6, 3},
                                         {100, 0},
                                         {101, 25},
                                         {1000, 250},
                                         {1000, 1000}}) {
        const auto want = reference(sums_of(ranks, count, wire), picks, static_cast<std::size_t>(ranks));
        std::vector<Sparse> got(static_cast<std::size_t>(ranks));
        std::vector<double> lost(count);
        run(ranks, [&, wire = wire, way = way, picks = picks, count = count](SimPort& port) {
          PickExchange exchange;
          Sparse remainders;
          const auto values = values_of(port.rank(), count, wire);
          got[static_cast<std::size_t>(port.rank())] = exchange.pick(port, values, picks, wire, way, remainders);
          for (std::size_t j = 0; j < remainders.indices.size(); ++j) {
            EXPECT_EQ(static_cast<int>(remainders.indices[j]) % ranks, port.rank());
            lost[remainders.indices[j]] += remainders.values[j];
          }
        });
        for (const Sparse& list : got) {
          ASSERT_EQ(list.indices, got[0].indices);
          ASSERT_EQ(list.values, got[0].values) << "bit for bit";
        }
        ASSERT_EQ(got[0].indices.size(), want.size());
        std::size_t j = 0;
        for (const auto& [position, sum] : want) {
          ASSERT_EQ(got[0].indices[j], position);
          ASSERT_NEAR(got[0].values[j] + lost[position], sum, 2e-6) << "rounding is accounted for";
          ASSERT_NEAR(got[0].values[j], sum, wire == Wire::kFp32 ? 2e-6 : 0.01 * std::abs(sum) + 1e-6);
          ++j;
        }
      }
    }
  }
}

TEST(PickExchange, PicksWhatPickBySharesPicksOfTheWholeSums) {
  for (const int ranks : {1, 3, 4}) {
    std::vector<float> sums(500);
    const auto exact = sums_of(ranks, sums.size(), Wire::kFp32);
    std::transform(exact.begin(), exact.end(), sums.begin(), [](double x) { return static_cast<float>(x); });
    TopK select;
    const Sparse want = pick_by_shares(sums, 77, ranks, select);
    run(ranks, [&](SimPort& port) {
      PickExchange exchange;
      Sparse lost;
      const Sparse got =
          exchange.pick(port, values_of(port.rank(), sums.size(), Wire::kFp32), 77, Wire::kFp32, Way::kOwners, lost);
      EXPECT_EQ(got.indices, want.indices);
    });
  }
}

TEST(PickExchange, OneRankPicksTheTrueTopK) {
  const auto values = values_of(0, 300, Wire::kFp32);
  const Sparse want = topk_reference(values, 40);
  run(1, [&](SimPort& port) {
    PickExchange exchange;
    Sparse lost;
    EXPECT_EQ(exchange.pick(port, values, 40, Wire::kFp32, Way::kOwners, lost).indices, want.indices);
  });
}

TEST(PickExchange, SendsTheBytesItsFormulaSaysInTwoDelaysOrOne) {
  for (const auto& [wire, way] : kWays) {
    for (const int ranks : {2, 3, 16}) {
      const auto outcomes = run(ranks, [&, wire = wire, way = way](SimPort& port) {
        MeteredFabric metered(port);
        PickExchange exchange;
        Sparse lost;
        exchange.pick(metered, values_of(port.rank(), 1001, wire), 250, wire, way, lost);
        EXPECT_DOUBLE_EQ(metered.take().bytes_sent, PickExchange::bytes_sent(1001, 250, ranks, wire, way));
      });
      const double width = static_cast<double>(wire_width(wire));
      const bool whole = way == Way::kEverybody;
      const double bytes =
          whole ? (ranks - 1.0) * 1001 * width : (ranks - 1.0) / ranks * (1001 * width + 250 * width + 1001.0 / 8);
      EXPECT_NEAR(outcomes[0].ended_at, (whole ? 1 : 2) * LinkModel{}.latency_s + bytes / LinkModel{}.bytes_per_s,
                  3e-6);
    }
  }
}

TEST(PickExchange, RefusesMorePicksThanValues) {
  EXPECT_THROW(run(2,
                   [](SimPort& port) {
                     PickExchange exchange;
                     Sparse lost;
                     exchange.pick(port, std::vector<float>(3), 4, Wire::kFp32, Way::kOwners, lost);
                   }),
               Error);
}

}  // namespace
}  // namespace slipstream
