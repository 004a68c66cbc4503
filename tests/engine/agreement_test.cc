// SPDX-License-Identifier: Apache-2.0
#include "engine/agreement.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <slipstream/optim/optimizer.h>

#include <functional>

#include "sim/sim_world.h"

namespace slipstream {
namespace {

// What every rank was told; empty where all is well.
std::vector<std::string> told(int ranks, const std::function<Facts(int rank)>& facts) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  SimWorldOptions options;
  options.ranks = ranks;
  SimWorld(options).run([&](SimPort& port) {
    try {
      require_same(port, facts(port.rank()), "start them alike");
    } catch (const ConfigError& e) {
      errors[static_cast<std::size_t>(port.rank())] = e.what();
    }
  });
  return errors;
}

TEST(Agreement, EqualFactsPassAtAnySize) {
  for (int ranks : {1, 2, 3, 7}) {
    for (const Facts& facts : {Facts{}, Facts{{"a", ""}}, Facts{{"a", "1"}, {"b", "x=y\nz"}}}) {
      for (const std::string& error : told(ranks, [&](int) { return facts; })) EXPECT_EQ(error, "");
    }
  }
}

TEST(Agreement, NamesTheFirstDifferenceBothValuesAndBothRanksOnAllRanks) {
  const auto errors = told(4, [](int rank) {
    return Facts{{"strategy", "topk"}, {"density", rank >= 2 ? "0.01" : "0.005"}, {"k", std::to_string(rank / 3)}};
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(
        error,
        "the ranks were given different options: rank 0 has density=0.005, rank 2 density=0.01; start them alike");
  }
}

TEST(Agreement, NamesAFactThatOneRankLacks) {
  const auto fewer = told(2, [](int rank) { return rank == 0 ? Facts{{"a", "1"}, {"b", "2"}} : Facts{{"a", "1"}}; });
  EXPECT_EQ(fewer[1], "the ranks were given different options: rank 0 has b=2, rank 1 nothing more; start them alike");
  const auto other = told(2, [](int rank) { return rank == 0 ? Facts{{"a", ""}} : Facts{{"c", "1"}}; });
  EXPECT_EQ(other[0], "the ranks were given different options: rank 0 has a=, rank 1 c=1; start them alike");
}

TEST(Agreement, OptionsAreFactsByTheirNames) {
  OptimizerOptions options{.lr = 0.25};
  OptionSet described("optimizer");
  options.describe(described);
  Facts facts;
  add_options(facts, described);
  EXPECT_EQ(facts.size(), described.all().size());
  EXPECT_EQ(facts[0], (Fact{"optimizer", "sgd"}));
  EXPECT_EQ(facts[1], (Fact{"lr", "0.25"}));
}

}  // namespace
}  // namespace slipstream
