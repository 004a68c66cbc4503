// SPDX-License-Identifier: Apache-2.0
//
// Weight decay means the same everywhere: where all gradients are zero, every strategy shrinks the weights as
// synchronous training does. A strategy joins by being registered.
#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <slipstream/strategy/registry.h>

#include <cmath>
#include <set>
#include <utility>

#include "sim/sim_job.h"

namespace slipstream {
namespace {

// Of these tensors `gs` sums "last" whole unless it has some thousands of elements.
class NoGradient final : public ToyTask {
 public:
  explicit NoGradient(std::size_t last) : last_(last) {}
  std::vector<Parameter> parameters() const override { return {{"first", 6}, {"one", 1}, {"last", last_}}; }
  void init(std::span<float> weights, std::uint64_t) const override {
    for (std::size_t j = 0; j < weights.size(); ++j) {
      weights[j] = (j % 2 == 0 ? 1.0F : -0.25F) * (1.0F + 0.1F * static_cast<float>(j % 31));
    }
  }
  double gradient(std::span<const float>, std::span<float> grads, int, std::int64_t) const override {
    std::fill(grads.begin(), grads.end(), 0.0F);
    return 1.0;
  }

 private:
  std::size_t last_;
};
constexpr std::size_t kSmall = 24, kSketched = 5000;

struct DecayRule {
  const char* name;
  OptimizerOptions optimizer;
};

const DecayRule kRules[] = {
    {"plain", {.lr = 0.5, .weight_decay = 5e-4}},
    {"momentum", {.lr = 0.05, .momentum = 0.9, .weight_decay = 5e-4}},
    {"nesterov", {.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 5e-4}},
    {"adamw", {.kind = "adamw", .lr = 0.01, .weight_decay = 0.1}},
};

// Adds decay to the gradient and makes of it steps of one length: what is left depends on how large a weight was.
const DecayRule kAdam{"adam", {.kind = "adam", .lr = 4e-4, .weight_decay = 0.1}};

// overlap-local never keeps the promise: merging with a point that is a period old gives up a part of every movement,
// that of decay too.
const std::set<std::string> kGivesUp = {"overlap-local"};

// An outer optimizer lengthens every movement of a period, that of decay among them: here it does not.
std::vector<std::string> settings(const std::string& strategy) {
  if (strategy == "diloco" || strategy == "streaming-diloco") return {"outer_lr=1", "outer_momentum=0"};
  return {};
}

// What is left of each weight; empty where the strategy refuses the optimizer, and says which it needs.
std::vector<double> left_over(const std::string& strategy, const OptimizerOptions& optimizer, std::size_t last,
                              int workers = 3, int servers = 0) {
  SimJobOptions job;
  job.world.ranks = workers;
  job.servers = servers;
  job.task = std::make_shared<NoGradient>(last);
  job.make_strategy = Registry::builtin().configure(strategy, settings(strategy)).make;
  job.optimizer = optimizer;
  job.steps = 500;
  try {
    const SimJobResult result = run_sim_job(job);
    EXPECT_TRUE(result.agreement());
    std::vector<float> first(result.ranks[0].weights.size());
    job.task->init(first, job.seed);
    std::vector<double> left;
    for (std::size_t j = 0; j < first.size(); ++j) left.push_back(result.ranks[0].weights[j] / first[j]);
    return left;
  } catch (const ConfigError& refusal) {
    EXPECT_NE(std::string(refusal.what()).find("optimizer="), std::string::npos) << refusal.what();
    return {};
  }
}

std::vector<std::string> names() {
  const Registry registry = Registry::builtin();
  std::vector<std::string> all;
  for (const StrategyInfo& info : registry.all()) all.push_back(info.name);
  return all;
}

// A hundredth of what is left, or of what is gone where that is more.
double tolerance(double left) { return 0.01 * std::max(left, 1.0 - left); }

class Decay : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Registry, Decay, testing::ValuesIn(names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(Decay, ShrinksTheWeightsAsSynchronousTrainingDoes) {
  if (kGivesUp.contains(GetParam())) return;
  std::vector<DecayRule> rules(std::begin(kRules), std::end(kRules));
  rules.push_back(kAdam);
  for (const DecayRule& rule : rules) {
    const auto dense = left_over("ssgd", rule.optimizer, kSketched);
    const auto left = left_over(GetParam(), rule.optimizer, kSketched);
    ASSERT_LT(dense.front(), 0.95) << "there must be something to see";
    if (left.empty()) continue;
    for (std::size_t j = 0; j < dense.size(); ++j) {
      ASSERT_NEAR(left[j], dense[j], tolerance(dense[j])) << GetParam() << " with " << rule.name << ", weight " << j;
    }
  }
}

TEST_P(Decay, LeavesAGroupWithoutDecayAloneAndShrinksTheRest) {
  const bool serves = Registry::builtin().configure(GetParam(), {}).make()->needs_servers();
  for (const DecayRule& rule : kRules) {
    OptimizerOptions grouped = rule.optimizer;
    grouped.groups = {{.names = {"first"}, .weight_decay = 0.0}};
    const auto dense = left_over("ssgd", rule.optimizer, kSmall);
    for (const auto& [workers, servers] : {std::pair{1, 0}, {2, 0}, {3, 0}, {3, 1}, {3, 2}}) {
      if (servers > 0 && !serves) continue;
      const auto left = left_over(GetParam(), grouped, kSmall, workers, servers);
      const bool kept = !kGivesUp.contains(GetParam());
      for (std::size_t j = 0; j < left.size(); ++j) {  // "first" has 6 weights
        const double expected = j < 6 ? 1.0 : kept ? dense[j] : left.back();
        ASSERT_NEAR(left[j], expected, tolerance(expected)) << GetParam() << " with " << rule.name << ", weight " << j
                                                            << ", " << workers << " workers, " << servers << " servers";
      }
      if (!left.empty()) {
        EXPECT_LT(left.back(), 0.95);
      }
    }
  }
}

}  // namespace
}  // namespace slipstream
