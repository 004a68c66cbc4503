// SPDX-License-Identifier: Apache-2.0
#include "engine/groups.h"

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "kit/sim.h"
#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;

FlatModel model() { return FlatModel({{"head.weight", 4}, {"head.bias", 2}, {"norm.weight", 2}, {"norm.bias", 1}}); }

TEST(Groups, AreFoundByNamesAndPatterns) {
  const GroupMap map = map_groups({{.names = {"*.bias"}}, {.names = {"norm.weight"}}}, model());
  const std::vector<GroupMap::Stretch> expected{{4, GroupMap::kNone}, {6, 0}, {8, 1}, {9, 0}};
  EXPECT_EQ(map.stretches(), expected);
  EXPECT_EQ(tensors_in({.names = {"*.bias"}}, model()), 2U);
  EXPECT_TRUE(map_groups({}, model()).stretches().empty());
}

TEST(Groups, AnEntryThatMatchesNothingIsAnErrorThatListsTheNames) {
  expect_error<ConfigError>(
      [] {
        map_groups({{.names = {"*.bias", "*.bais"}}}, model());
      },
      {"*.bais", "head.weight, head.bias, norm.weight, norm.bias"});
  expect_error<ConfigError>([] { map_groups({{}}, model()); }, {"group 0 names no parameters"});
}

TEST(Groups, AParameterInTwoGroupsIsAnErrorThatNamesIt) {
  expect_error<ConfigError>(
      [] {
        map_groups({{.names = {"*.bias"}}, {.names = {"head.*"}}}, model());
      },
      {"head.bias is in the groups 0 and 1"});
}

// The job's weights after steps of 1 with gradients of 1, the second of them with another factor.
std::vector<float> moved(const test::Variant& variant) {
  std::vector<float> weights;
  SimWorld({.ranks = 1}).run([&](SimPort& port) {
    FlatModel flat({{"a", 1}, {"b", 1}});
    Engine engine(
        port, flat, variant.configure().make(),
        {.optimizer = {.lr = 1, .momentum = 0, .groups = {{.names = {"b"}, .lr_factor = 0.5}}}, .health = false});
    for (const double factor : {0.5, 4.0}) {
      engine.set_lr_factor(0, factor);
      flat.grads()[0] = flat.grads()[1] = 1.0F;
      engine.step(1);
    }
    engine.finish();
    weights.assign(flat.weights().begin(), flat.weights().end());
  });
  return weights;
}

TEST(Groups, AFactorChangesFromTheNextStepOn) {
  for (const test::Variant& variant : {test::Variant{"ssgd", {}}, {"topk", {"density=1"}}, {"dasgd", {}}}) {
    EXPECT_EQ(moved(variant), (std::vector<float>{-2, -4.5})) << variant.name();
  }
}

TEST(Groups, AFactorThatServersHaveLearntCannotChange) {
  SimWorld({.ranks = 1}).run([](SimPort& port) {
    FlatModel flat({{"a", 1}});
    struct Served final : Strategy {
      bool needs_servers() const override { return true; }
      void on_step(Step&) override {}
      void visit(StateVisitor&) override {}
    };
    Engine engine(port, flat, std::make_unique<Served>(),
                  {.optimizer = {.groups = {{.names = {"a"}}}}, .health = false});
    expect_error<ConfigError>([&] { engine.set_lr_factor(0, 2.0); }, {"learn it at the start", "strategy=ssgd"});
  });
}

}  // namespace
}  // namespace slipstream
