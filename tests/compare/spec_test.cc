// SPDX-License-Identifier: Apache-2.0
#include "compare/spec.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <slipstream/strategy/registry.h>

#include "task/files.h"

namespace slipstream {
namespace {

class Spec : public ::testing::Test {
 protected:
  std::vector<GridSpec> read(const std::string& text) const { return read_spec(files_.write("s.toml", text)); }

  // What reading it is refused with.
  std::string refusal(const std::string& text) const {
    try {
      (void)read(text);
    } catch (const ConfigError& e) {
      return e.what();
    }
    ADD_FAILURE() << "accepted:\n" << text;
    return "";
  }
  void expect_refusal(const std::string& text, const std::vector<std::string>& words) const {
    const std::string said = refusal(text);
    for (const std::string& word : words) EXPECT_NE(said.find(word), std::string::npos) << word << " in: " << said;
  }

  test::TempDir files_;
};

TEST_F(Spec, KeysBeforeTheFirstGridHoldForAll) {
  const auto grids = read(R"(
train = "--steps 5"
seeds = [1, 2]
strategies = ["ssgd", "lags"]
limit = 0.5
[[grid]]
name = "a"
[[grid]]
name = "b"
train = ["--data", "a b"]
seeds = [3]
links = ["100mbit,25ms", "none"]
workers = [2, 4]
target = "85%"
limits = {lags = 2}
claims = [{kind = "bytes", of = ["lags"], value = 0.1}]
)");
  ASSERT_EQ(grids.size(), 2U);
  EXPECT_EQ(grids[0].train, (std::vector<std::string>{"--steps", "5"}));
  EXPECT_EQ(grids[0].seeds, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(grids[0].links, std::vector<std::string>{"loopback"});
  EXPECT_EQ(grids[0].limit_of("lags"), 0.5);
  EXPECT_EQ(grids[0].limit_of("ssgd"), std::nullopt) << "the reference has none";
  EXPECT_EQ(grids[1].train, (std::vector<std::string>{"--steps", "5", "--data", "a b"}));
  EXPECT_EQ(grids[1].seeds, std::vector<std::int64_t>{3});
  EXPECT_EQ(grids[1].limit_of("lags"), 2.0);
  EXPECT_DOUBLE_EQ(*grids[1].target, 0.85);
  ASSERT_EQ(grids[1].claims.size(), 1U);
  EXPECT_EQ(grids[1].claims[0].of, std::vector<std::string>{"lags"});
}

TEST_F(Spec, AFileWithoutGridsIsOneGridOfItsName) {
  const auto grids = read("strategies = [\"ssgd\"]\n");
  ASSERT_EQ(grids.size(), 1U);
  EXPECT_EQ(grids[0].name, "s");
}

TEST_F(Spec, ErrorsNameTheFileTheLineAndTheNearestKey) {
  expect_refusal("strategies = [\"ssgd\"]\n\nsedes = [1]\n", {"s.toml:3:", "sedes", "did you mean seeds?"});
  expect_refusal("strategies = [\"ssgd\"]\nseeds = [1\n", {"s.toml:"});
  expect_refusal("strategies = [\"ssgd\"]\nseeds = \"1\"\n", {"s.toml:2:", "seeds", "list of whole numbers"});
  expect_refusal("strategies = [\"ssgd\"]\nlimit = \"1\"\n", {"s.toml:2:", "limit is a number"});
  expect_refusal("strategies = \"ssgd\"\n", {"s.toml:1:", "list of texts"});
  expect_refusal("repeats = 1.5\n", {"s.toml:1:", "whole number"});
  expect_refusal("claims = [{kind = \"x\", off = 1}]\n", {"s.toml:1:", "no key off"});
  expect_refusal("strategies = [\"ssgd\"]\n[grid]\nname = \"a\"\n", {"s.toml:2:", "[[grid]]"});
  expect_refusal("strategies = [\"ssgd\"]\n[[grid]]\nname = \"a\"\n[[grid]]\nname = \"a\"\n",
                 {"s.toml:4:", "another grid"});
  EXPECT_THROW(read_spec("no/such/file.toml"), ConfigError);
}

TEST_F(Spec, WhatDoesNotFitTogetherIsRefusedAtItsGrid) {
  const auto with = [](const std::string& more) { return "strategies = [\"ssgd\", \"lags\"]\n[[grid]]\n" + more; };
  expect_refusal(with("limits = {lasg = 1}\n"), {"s.toml:2:", "lasg", "did you mean lags?"});
  expect_refusal(with("claims = [{kind = \"bytes\", of = [\"gs\"], value = 1}]\n"), {"s.toml:2:", "gs", "none of its"});
  expect_refusal(with("claims = [{kind = \"faster\", of = [\"lags\"], value = 1}]\n"), {"'faster'", "no worse, bytes"});
  expect_refusal(with("claims = [{kind = \"no worse\", of = [\"lags\"], value = 1}]\n"), {"2 contenders, not 1"});
  expect_refusal(with("links = [\"100mbit,\"]\n"), {"s.toml:2:"});
  expect_refusal(with("links = [\"none\", \"none\"]\n"), {"the link none twice"});
  expect_refusal(with("workers = [0]\n"), {"0 workers"});
  expect_refusal(with("seeds = []\n"), {"nothing to run"});
  expect_refusal(with("seeds = [-1]\n"), {"seed -1"});
  expect_refusal(with("repeats = 0\n"), {"repeats = 0"});
  expect_refusal(with("target = 85\n"), {"85", "0.85"});
  expect_refusal(with("train = \"--steps 5 --lab 100mbit\"\n"), {"--lab", "use links"});
  expect_refusal(with("train = \"--seed=5\"\n"), {"--seed", "use seeds"});
  expect_refusal(with("peers = [\"ddq\"]\nlinks = [\"none\"]\n"), {"no peer ddq", "powersgd1"});
  expect_refusal(with("peers = [\"ddp@x\"]\nlinks = [\"none\"]\n"), {"ddp@x"});
  expect_refusal(with("peers = [\"ddp\"]\n"), {"runs in a lab", "none"});
  expect_refusal("[[grid]]\nname = \"a\"\n", {"no contender"});
}

TEST_F(Spec, ATargetIsAShareOrALoss) {
  EXPECT_DOUBLE_EQ(parse_target("85%"), 0.85);
  EXPECT_DOUBLE_EQ(parse_target("1.9"), 1.9);
  for (const char* text : {"", "%", "85 %", "x", "nan", "1.9x"}) EXPECT_THROW(parse_target(text), ConfigError) << text;
  EXPECT_NO_THROW(read("strategies = [\"ssgd\"]\ntrain = \"--task text\"\ntarget = 1.9\n"));
}

TEST_F(Spec, StrategiesArePickedByNameBesideTheReference) {
  auto grid = read(R"(
strategies = ["ssgd", "lags", "lags:density=0.1", "gs"]
limits = {gs = 1, lags = 2}
claims = [{kind = "no worse", of = ["lags", "gs"], value = 1}, {kind = "bytes", of = ["lags"], value = 1}]
)")
                  .front();
  GridSpec some = grid;
  keep_strategies(some, {"lags"});
  EXPECT_EQ(some.strategies, (std::vector<std::string>{"ssgd", "lags", "lags:density=0.1"}));
  EXPECT_EQ(some.limits.size(), 1U);
  ASSERT_EQ(some.claims.size(), 1U);
  EXPECT_EQ(some.claims[0].kind, "bytes");
  some = grid;
  keep_strategies(some, {"lags:density=0.1"});
  EXPECT_EQ(some.strategies, (std::vector<std::string>{"ssgd", "lags:density=0.1"}));
  EXPECT_THROW(keep_strategies(some, {"gtopk"}), ConfigError);
}

TEST_F(Spec, ThoseOfTheRepositoryAreUnderstood) {
  const Registry registry = Registry::builtin();
  int grids = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SLIPSTREAM_SOURCE_DIR "/bench/lab")) {
    if (entry.path().extension() != ".toml") continue;
    for (const GridSpec& grid : read_spec(entry.path())) {
      ++grids;
      for (const std::string& strategy : grid.strategies) {
        EXPECT_NO_THROW((void)registry.find(strategy_name(strategy))) << entry.path() << ": " << strategy;
      }
    }
  }
  EXPECT_GE(grids, 10);
}

}  // namespace
}  // namespace slipstream
