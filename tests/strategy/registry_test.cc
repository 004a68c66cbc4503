// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <slipstream/strategy/registry.h>

#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;

class Idle final : public Strategy {
 public:
  struct Options {
    std::int64_t patience = 3;
    void describe(OptionSet& o) { o.integer("patience", patience, {1, 9}, kChangesResult, "how much of it"); }
  };
  explicit Idle(const Options& options) : options(options) {}
  static double bytes_sent(const Options& options, const TrafficQuery& q) {
    return static_cast<double>(options.patience * q.workers);
  }
  void on_step(Step&) override {}
  void visit(StateVisitor&) override {}

  const Options options;
};

StrategyInfo idle() {
  StrategyInfo info;
  info.name = "idle";
  info.configure = [] { return configure_strategy<Idle>("idle"); };
  return info;
}

TEST(Registry, HasTheBaselines) {
  const Registry registry = Registry::builtin();
  EXPECT_EQ(registry.find("ssgd").name, "ssgd");
  EXPECT_EQ(registry.find("local").name, "local");
}

TEST(Registry, NamesTheNearestStrategy) {
  const Registry registry = Registry::builtin();
  expect_error<ConfigError>([&] { (void)registry.find("sgd"); }, {"'sgd'", "did you mean 'ssgd'", "slipstream list"});
  expect_error<ConfigError>([&] { (void)registry.find("locl"); }, {"did you mean 'local'"});
  try {
    (void)registry.find("zzzzzzzzzzzzzzzz");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find("did you mean"), std::string::npos) << "nothing is near: " << error.what();
  }
}

TEST(Registry, ConfiguresFromPairs) {
  Registry registry = Registry::builtin();
  registry.add(idle());
  const auto configured = registry.configure("idle", {"patience=5", "patience=7"});
  const auto strategy = configured.make();
  EXPECT_EQ(dynamic_cast<Idle&>(*strategy).options.patience, 7) << "the last one counts";
  const FlatModel model({{"w", 1}});
  EXPECT_EQ(configured.bytes_sent({model, 4, 0}), 28.0);
}

TEST(Registry, ConfigurationsAreIndependent) {
  Registry registry;
  registry.add(idle());
  const auto five = registry.configure("idle", {"patience=5"});
  const auto usual = registry.configure("idle", {});
  EXPECT_EQ(dynamic_cast<Idle&>(*five.make()).options.patience, 5);
  EXPECT_EQ(dynamic_cast<Idle&>(*usual.make()).options.patience, 3);
}

TEST(Registry, AStrategyOutlivesItsConfiguration) {
  std::function<std::unique_ptr<Strategy>()> make;
  {
    Registry registry;
    registry.add(idle());
    make = registry.configure("idle", {"patience=4"}).make;
  }
  EXPECT_EQ(dynamic_cast<Idle&>(*make()).options.patience, 4);
}

TEST(Registry, RefusesUnknownOptionsAndValues) {
  const Registry registry = Registry::builtin();
  expect_error<ConfigError>([&] { registry.configure("local", {"perod=3"}); },
                            {"strategy local", "'perod'", "did you mean 'period'"});
  expect_error<ConfigError>([&] { registry.configure("local", {"period=0"}); }, {"period", "out of range"});
  expect_error<ConfigError>([&] { registry.configure("local", {"period"}); }, {"'period'", "key=value"});
  expect_error<ConfigError>([&] { registry.configure("ssgd", {"wire=fp8"}); }, {"wire", "fp32, fp16, bf16"});
}

TEST(Registry, RefusesANameTwice) {
  Registry registry;
  registry.add(idle());
  expect_error<Error>([&] { registry.add(idle()); }, {"idle", "twice"});
}

}  // namespace
}  // namespace slipstream
