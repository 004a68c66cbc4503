// SPDX-License-Identifier: Apache-2.0
//
// Every strategy with every kind of recipe that users train with: it learns, or it refuses by naming what works. The
// table in docs/strategies.md is what comes out of this; when they differ, the test prints the right one.
#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <slipstream/strategy/registry.h>

#include <fstream>
#include <numeric>
#include <sstream>

#include "kit/fixed_chooser.h"
#include "sim/sim_job.h"

namespace slipstream {
namespace {

struct Recipe {
  const char* name;
  OptimizerOptions optimizer;
  int passes = 1;  // backward passes per step, of equal parts of a batch
};

// The gradients that several backward passes leave behind, each of the mean loss of its own samples over their number.
class Accumulated final : public ToyTask {
 public:
  Accumulated(MlpOptions options, int passes) : task_(part(options, passes)), passes_(passes) {}

  std::vector<Parameter> parameters() const override { return task_.parameters(); }
  void init(std::span<float> weights, std::uint64_t seed) const override { task_.init(weights, seed); }
  double gradient(std::span<const float> weights, std::span<float> grads, int rank, std::int64_t t) const override {
    std::vector<float> pass(grads.size());
    std::fill(grads.begin(), grads.end(), 0.0F);
    double loss = 0;
    for (int p = 0; p < passes_; ++p) {
      loss += task_.gradient(weights, pass, rank, t * passes_ + p) / passes_;
      for (std::size_t i = 0; i < pass.size(); ++i) grads[i] += pass[i] / static_cast<float>(passes_);
    }
    return loss;
  }

 private:
  static MlpOptions part(MlpOptions options, int passes) {
    options.batch /= static_cast<std::size_t>(passes);
    return options;
  }
  MlpTask task_;
  int passes_;
};

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      {"sgd", {.lr = 0.05, .momentum = 0.9}},
      {"nesterov", {.lr = 0.05, .momentum = 0.9, .nesterov = true}},
      {"adam", {.kind = "adam", .lr = 0.01}},
      {"adamw", {.kind = "adamw", .lr = 0.01, .weight_decay = 0.01}},
      {"weight_decay", {.lr = 0.05, .momentum = 0.9, .weight_decay = 5e-4}},
      {"clip_norm", {.lr = 0.05, .momentum = 0.9, .clip_norm = 1.0}},
      {"accumulate", {.lr = 0.05, .momentum = 0.9}, 2},
      {"groups",
       {.lr = 0.05,
        .momentum = 0.9,
        .weight_decay = 5e-4,
        .groups = {{.names = {"fc1.bias"}, .lr_factor = 0.0},
                   {.names = {"fc2.*"}, .lr_factor = 0.5, .weight_decay = 0}}}},
  };
  return all;
}

// Four workers on three tensors of the classifier below, of which one is large enough to be compressed by all. `auto`
// takes lags at 1 % after its dense steps.
SimJobResult train(const std::string& strategy, const Recipe& recipe) {
  SimJobOptions job;
  job.world.ranks = 4;
  job.task =
      std::make_shared<Accumulated>(MlpOptions{.inputs = 64, .hidden = 96, .classes = 8, .batch = 16}, recipe.passes);
  const test::FixedChooser chooser("lags:adaptive=false");
  const std::vector<std::string> keeps_it = {"try_steps=1000"};
  job.make_strategy =
      Registry::builtin().configure(strategy, strategy == "auto" ? keeps_it : std::vector<std::string>()).make;
  job.chooser = &chooser;
  job.optimizer = recipe.optimizer;
  job.steps = 250;
  return run_sim_job(job);
}

double mean_loss(const SimJobResult& result, std::size_t first, std::size_t count) {
  double sum = 0;
  for (const SimRankResult& rank : result.ranks) {
    for (std::size_t t = first; t < first + count; ++t) sum += rank.steps[t].loss;
  }
  return sum / static_cast<double>(count * result.ranks.size());
}

// The group with a rate of 0 is the first layer's bias. Averages may round it; any step would move it much further.
void expect_frozen_bias(const SimJobResult& result, const std::string& strategy) {
  const MlpTask task({.inputs = 64, .hidden = 96, .classes = 8});
  FlatModel model(task.parameters());
  task.init(model.weights(), SimJobOptions().seed);
  const Slot& bias = model.slots()[1];
  ASSERT_EQ(bias.name, "fc1.bias");
  for (std::size_t i = bias.offset; i < bias.offset + bias.count; ++i) {
    ASSERT_NEAR(result.ranks[0].weights[i], model.weights()[i], 1e-6) << strategy << " moves what has a rate of 0";
  }
}

std::string cell(const std::string& strategy, const Recipe& recipe) {
  try {
    const SimJobResult result = train(strategy, recipe);
    EXPECT_TRUE(result.agreement()) << strategy << " with " << recipe.name;
    const double before = mean_loss(result, 0, 5), after = mean_loss(result, 230, 20);
    EXPECT_LT(after, 0.25 * before) << strategy << " with " << recipe.name << " does not learn";
    if (!recipe.optimizer.groups.empty()) expect_frozen_bias(result, strategy);
    return "yes";
  } catch (const ConfigError& refusal) {
    EXPECT_NE(std::string(refusal.what()).find('='), std::string::npos)
        << strategy << " with " << recipe.name << " names nothing that works: " << refusal.what();
    return "no";
  }
}

TEST(Recipes, EveryStrategyLearnsWithEveryOneItTakesAndTheDocumentedTableIsTrue) {
  std::string table = "| strategy |", line = "|---|";
  for (const Recipe& recipe : recipes()) {
    table += fmt::format(" {} |", recipe.name);
    line += "---|";
  }
  table += "\n" + line + "\n";
  const Registry registry = Registry::builtin();
  for (const StrategyInfo& info : registry.all()) {
    table += fmt::format("| `{}` |", info.name);
    for (const Recipe& recipe : recipes()) table += fmt::format(" {} |", cell(info.name, recipe));
    table += "\n";
  }
  std::ifstream file(SLIPSTREAM_SOURCE_DIR "/docs/strategies.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_NE(page.str().find(table), std::string::npos) << "docs/strategies.md should have this table:\n" << table;
}

}  // namespace
}  // namespace slipstream
