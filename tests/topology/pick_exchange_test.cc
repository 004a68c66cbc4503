// SPDX-License-Identifier: Apache-2.0
#include "topology/pick_exchange.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <cmath>
#include <map>

#include "base/rng.h"
#include "fabric/metered_fabric.h"
#include "sim/sim_world.h"

namespace slipstream {
namespace {

std::vector<std::pair<ValueFormat, Way>> ways() {
  std::vector<std::pair<ValueFormat, Way>> all;
  for (const auto format : {ValueFormat::kFp32, ValueFormat::kBf16, ValueFormat::kInt8}) {
    for (const Way way : {Way::kOwners, Way::kEverybody}) all.emplace_back(format, way);
  }
  return all;
}

std::vector<float> values_of(int rank, std::size_t count) {
  Rng random(7, static_cast<std::uint64_t>(rank));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

std::vector<double> sums_of(const std::vector<std::vector<float>>& ranks) {
  std::vector<double> sums(ranks.front().size());
  for (const auto& values : ranks) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += values[j];
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

TEST(PickExchange, EveryRankHoldsTheLargestSumsOfWhatWasSent) {
  for (const auto& [format, way] : ways()) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      for (const auto& [count, picks] : {std::pair<std::size_t, std::size_t>{0, 0},
                                         {1, 1},
                                         {5, 5},
                                         {5, 2},
                                         {6, 3},
                                         {100, 0},
                                         {101, 25},
                                         {1000, 250},
                                         {3000, 2000},
                                         {1000, 1000}}) {
        std::vector<Sparse> got(static_cast<std::size_t>(ranks));
        std::vector<std::vector<float>> sent(static_cast<std::size_t>(ranks));
        std::vector<double> lost(count);
        run(ranks, [&, format = format, way = way, picks = picks, count = count](SimPort& port) {
          const auto rank = static_cast<std::size_t>(port.rank());
          PickExchange exchange;
          Sparse remainders;
          const std::vector<float> values = values_of(port.rank(), count);
          sent[rank] = values;
          got[rank] = exchange.pick(port, sent[rank], picks, format, way, remainders);
          const float coarsest = format == ValueFormat::kFp32 ? 0.0F : format == ValueFormat::kBf16 ? 0.01F : 0.02F;
          for (std::size_t j = 0; j < count; ++j) EXPECT_NEAR(sent[rank][j], values[j], coarsest);
          for (std::size_t j = 0; j < remainders.indices.size(); ++j) {
            EXPECT_EQ(static_cast<int>(remainders.indices[j]) % ranks, port.rank());
            lost[remainders.indices[j]] += remainders.values[j];
          }
        });
        const auto want = reference(sums_of(sent), picks, static_cast<std::size_t>(ranks));
        for (const Sparse& list : got) {
          ASSERT_EQ(list.indices, got[0].indices);
          ASSERT_EQ(list.values, got[0].values) << "bit for bit";
        }
        ASSERT_EQ(got[0].indices.size(), want.size());
        std::size_t j = 0;
        for (const auto& [position, sum] : want) {
          ASSERT_EQ(got[0].indices[j], position);
          ASSERT_NEAR(got[0].values[j] + lost[position], sum, 2e-6) << "rounding is accounted for";
          ASSERT_NEAR(got[0].values[j], sum, format == ValueFormat::kFp32 ? 2e-6 : 0.05);
          ++j;
        }
      }
    }
  }
}

TEST(PickExchange, PicksWhatPickBySharesPicksOfTheWholeSums) {
  for (const int ranks : {1, 3, 4}) {
    std::vector<float> sums(500);
    std::vector<std::vector<float>> all;
    for (int r = 0; r < ranks; ++r) all.push_back(values_of(r, sums.size()));
    const auto exact = sums_of(all);
    std::transform(exact.begin(), exact.end(), sums.begin(), [](double x) { return static_cast<float>(x); });
    TopK select;
    const Sparse want = pick_by_shares(sums, 77, ranks, select);
    run(ranks, [&](SimPort& port) {
      PickExchange exchange;
      Sparse lost;
      std::vector<float> values = values_of(port.rank(), sums.size());
      const Sparse got = exchange.pick(port, values, 77, ValueFormat::kFp32, Way::kOwners, lost);
      EXPECT_EQ(got.indices, want.indices);
    });
  }
}

TEST(PickExchange, OneRankPicksTheTrueTopK) {
  std::vector<float> values = values_of(0, 300);
  const Sparse want = topk_reference(values, 40);
  run(1, [&](SimPort& port) {
    PickExchange exchange;
    Sparse lost;
    EXPECT_EQ(exchange.pick(port, values, 40, ValueFormat::kFp32, Way::kOwners, lost).indices, want.indices);
  });
}

TEST(PickExchange, SendsTheBytesItsFormulaSaysInTwoDelaysOrOne) {
  for (const auto& [format, way] : ways()) {
    for (const int ranks : {2, 3, 16}) {
      const auto outcomes = run(ranks, [&, format = format, way = way](SimPort& port) {
        MeteredFabric metered(port);
        PickExchange exchange;
        Sparse lost;
        std::vector<float> values = values_of(port.rank(), 1001);
        exchange.pick(metered, values, 250, format, way, lost);
        EXPECT_DOUBLE_EQ(metered.take().bytes_sent, PickExchange::bytes_sent(1001, 250, ranks, format, way));
      });
      const double width = format == ValueFormat::kFp32 ? 4 : format == ValueFormat::kBf16 ? 2 : 1 + 4.0 / 256;
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
                     std::vector<float> values(3);
                     exchange.pick(port, values, 4, ValueFormat::kFp32, Way::kOwners, lost);
                   }),
               Error);
}

}  // namespace
}  // namespace slipstream
