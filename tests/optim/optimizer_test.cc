// SPDX-License-Identifier: Apache-2.0
//
// Each rule against its definition in double precision, 50 steps, and what an optimizer promises around it.
#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <slipstream/optim/optimizer.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace slipstream {
namespace {

constexpr std::size_t kCount = 37;
constexpr int kSteps = 50;

std::vector<float> random_vector(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(kCount);
  for (float& value : values) value = static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-31F;
  return values;
}

// The rules as published, one element at a time.
class Reference {
 public:
  Reference(OptimizerOptions o, const std::vector<float>& w) : o_(std::move(o)), w_(w.begin(), w.end()) {}

  void step(const std::vector<float>& grads, double scale) {
    ++t_;
    std::vector<double> g(grads.begin(), grads.end());
    double squares = 0;
    for (double& x : g) {
      x *= scale;
      squares += x * x;
    }
    const double factor = o_.clip_norm > 0 ? std::min(1.0, o_.clip_norm / (std::sqrt(squares) + 1e-6)) : 1.0;
    for (std::size_t i = 0; i < g.size(); ++i) o_.kind == "sgd" ? sgd(i, factor * g[i]) : adam(i, factor * g[i]);
  }

  const std::vector<double>& weights() const { return w_; }

 private:
  void sgd(std::size_t i, double g) {
    g += o_.weight_decay * w_[i];
    a_[i] = t_ == 1 ? g : o_.momentum * a_[i] + g;
    w_[i] -= o_.lr * (o_.nesterov ? g + o_.momentum * a_[i] : a_[i]);
  }
  void adam(std::size_t i, double g) {
    if (o_.kind == "adamw") w_[i] *= 1 - o_.lr * o_.weight_decay;
    if (o_.kind == "adam") g += o_.weight_decay * w_[i];
    a_[i] = o_.beta1 * a_[i] + (1 - o_.beta1) * g;
    b_[i] = o_.beta2 * b_[i] + (1 - o_.beta2) * g * g;
    const double mean = a_[i] / (1 - std::pow(o_.beta1, t_));
    const double variance = b_[i] / (1 - std::pow(o_.beta2, t_));
    w_[i] -= o_.lr * mean / (std::sqrt(variance) + o_.eps);
  }

  OptimizerOptions o_;
  std::vector<double> w_, a_ = std::vector<double>(kCount), b_ = std::vector<double>(kCount);
  int t_ = 0;
};

void expect_follows_reference(const OptimizerOptions& options, float scale) {
  std::vector<float> weights = random_vector(1);
  Reference reference(options, weights);
  const auto optimizer = make_optimizer(options, kCount);
  for (int t = 0; t < kSteps; ++t) {
    const std::vector<float> grads = random_vector(100 + static_cast<std::uint32_t>(t));
    optimizer->step(weights, grads, scale);
    reference.step(grads, scale);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(weights[i], reference.weights()[i], 1e-5 * (1 + std::abs(reference.weights()[i])))
          << options.kind << " step " << t << " element " << i;
    }
  }
}

TEST(Optimizer, SgdFollowsItsDefinition) {
  for (const double momentum : {0.0, 0.5, 0.9}) {
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0.0) continue;
      for (const double decay : {0.0, 0.01}) {
        for (const double clip : {0.0, 0.7}) {
          expect_follows_reference(
              {.lr = 0.05, .momentum = momentum, .nesterov = nesterov, .weight_decay = decay, .clip_norm = clip},
              0.25F);
        }
      }
    }
  }
}

TEST(Optimizer, AdamAndAdamwFollowTheirDefinitions) {
  for (const char* kind : {"adam", "adamw"}) {
    for (const double decay : {0.0, 0.1}) {
      for (const double clip : {0.0, 0.7}) {
        expect_follows_reference({.kind = kind, .lr = 0.01, .weight_decay = decay, .clip_norm = clip}, 0.5F);
        expect_follows_reference(
            {.kind = kind, .lr = 0.01, .weight_decay = decay, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-3}, 1.0F);
      }
    }
  }
}

// A P-th of g^2 in the variance makes Adam's steps the root of P times as long, and nothing else.
TEST(Optimizer, AVarianceAsOfAMeanOverWorkersLengthensAdamsStepsByTheRootOfTheirNumber) {
  const auto run = [](const OptimizerOptions& options, int averaged_over) {
    std::vector<float> weights = random_vector(1);
    const auto optimizer = make_optimizer(options, kCount);
    for (std::uint32_t t = 0; t < kSteps; ++t) optimizer->step(weights, random_vector(100 + t), 1.0F, averaged_over);
    return weights;
  };
  OptimizerOptions adam{.kind = "adamw", .lr = 0.01, .weight_decay = 0.2, .eps = 1e-30};
  const auto own = run(adam, 4);
  adam.lr *= 2;
  adam.weight_decay /= 2;  // the decay of a step is the same
  const auto longer = run(adam, 1);
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_NEAR(own[i], longer[i], 1e-5 * (1 + std::abs(longer[i])));
  EXPECT_EQ(run({.lr = 0.05, .momentum = 0.9}, 4), run({.lr = 0.05, .momentum = 0.9}, 1)) << "sgd has no variance";
}

TEST(Optimizer, ScalingTheGradientEqualsScalingInTheStep) {
  std::vector<float> once = random_vector(1), twice = once;
  const std::vector<float> grads = random_vector(2);
  std::vector<float> quarter = grads;
  for (float& g : quarter) g *= 0.25F;
  for (const char* kind : {"sgd", "adam"}) {
    make_optimizer({.kind = kind, .clip_norm = 0.1}, kCount)->step(once, grads, 0.25F);
    make_optimizer({.kind = kind, .clip_norm = 0.1}, kCount)->step(twice, quarter);
    EXPECT_EQ(once, twice) << kind;
  }
}

TEST(Optimizer, ClippingLeavesShortGradientsAlone) {
  std::vector<float> clipped = random_vector(1), plain = clipped;
  make_optimizer({.clip_norm = 1000.0}, kCount)->step(clipped, random_vector(2));
  make_optimizer({}, kCount)->step(plain, random_vector(2));
  EXPECT_EQ(clipped, plain);
}

TEST(Optimizer, ClippingLimitsTheLengthOfTheWholeStep) {
  std::vector<float> weights(kCount);
  make_optimizer({.lr = 1.0, .momentum = 0.0, .clip_norm = 0.5}, kCount)->step(weights, random_vector(2));
  double squares = 0;
  for (const float w : weights) squares += static_cast<double>(w) * w;
  EXPECT_NEAR(std::sqrt(squares), 0.5, 1e-5);
}

TEST(Optimizer, ClippingDoesNotHideANan) {
  std::vector<float> weights(kCount), grads = random_vector(2);
  grads[3] = std::numeric_limits<float>::quiet_NaN();
  make_optimizer({.clip_norm = 0.5}, kCount)->step(weights, grads);
  for (const float w : weights) EXPECT_TRUE(std::isnan(w));
}

TEST(Optimizer, ANewLearningRateActsInTheNextStep) {
  std::vector<float> weights(kCount);
  const auto sgd = make_optimizer({.lr = 1.0, .momentum = 0.0}, kCount);
  sgd->set_lr(0.0);
  sgd->step(weights, random_vector(2));
  EXPECT_EQ(weights, std::vector<float>(kCount));
  sgd->set_lr(1.0);
  EXPECT_EQ(sgd->lr(), 1.0);
  sgd->step(weights, std::vector<float>(kCount, 1.0F));
  EXPECT_EQ(weights, std::vector<float>(kCount, -1.0F));
}

class Copier final : public StateVisitor {  // takes the state at the first visit, gives it back at the second
 public:
  void floats(std::string_view name, std::span<float> values) override {
    names_.emplace_back(name);
    auto& kept = floats_[std::string(name)];
    if (give_back_) std::copy(kept.begin(), kept.end(), values.begin());
    kept.assign(values.begin(), values.end());
  }
  void integer(std::string_view name, std::int64_t& value) override {
    names_.emplace_back(name);
    if (give_back_) value = integers_[std::string(name)];
    integers_[std::string(name)] = value;
  }
  void give_back() { give_back_ = true; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  bool give_back_ = false;
  std::vector<std::string> names_;
  std::map<std::string, std::vector<float>> floats_;
  std::map<std::string, std::int64_t> integers_;
};

TEST(Optimizer, NamesItsState) {
  const auto names = [](const OptimizerOptions& options) {
    Copier copier;
    make_optimizer(options, kCount)->visit(copier);
    return copier.names();
  };
  EXPECT_EQ(names({}), (std::vector<std::string>{"velocity"}));
  EXPECT_EQ(names({.momentum = 0.0}), std::vector<std::string>{});
  EXPECT_EQ(names({.kind = "adamw"}), (std::vector<std::string>{"moment1", "moment2", "steps"}));
}

TEST(Optimizer, RestoredStateContinuesBitForBit) {
  for (const char* kind : {"sgd", "adam", "adamw"}) {
    const OptimizerOptions options{.kind = kind, .lr = 0.01, .weight_decay = 0.1};
    std::vector<float> weights = random_vector(1);
    const auto first = make_optimizer(options, kCount);
    for (std::uint32_t t = 0; t < 5; ++t) first->step(weights, random_vector(t));
    Copier copier;
    first->visit(copier);
    const auto second = make_optimizer(options, kCount);
    copier.give_back();
    second->visit(copier);
    std::vector<float> resumed = weights;
    for (std::uint32_t t = 5; t < 10; ++t) {
      first->step(weights, random_vector(t));
      second->step(resumed, random_vector(t));
    }
    EXPECT_EQ(weights, resumed) << kind;
  }
}

TEST(Optimizer, RefusesWhatMakesNoSense) {
  EXPECT_THROW(make_optimizer({.momentum = 0.0, .nesterov = true}, 1), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = "adam", .nesterov = true}, 1), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = "lion"}, 1), ConfigError);
  EXPECT_THROW(make_optimizer({.lr = -0.1}, 1), ConfigError);
  EXPECT_THROW(make_optimizer({.lr = std::nan("")}, 1), ConfigError);
  EXPECT_THROW(make_optimizer({.momentum = 1.0}, 1), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = "adam", .beta2 = 1.0}, 1), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = "adam", .eps = 0.0}, 1), ConfigError);
}

TEST(Optimizer, RefusesRangesOfAnotherSize) {
  std::vector<float> weights(3);
  EXPECT_THROW(make_optimizer({}, 4)->step(weights, weights), Error);
  EXPECT_THROW(make_optimizer({.kind = "adam"}, 4)->step(weights, weights), Error);
}

TEST(Optimizer, AnEmptyRangeIsFine) {
  for (const char* kind : {"sgd", "adam", "adamw"}) {
    EXPECT_NO_THROW(make_optimizer({.kind = kind, .clip_norm = 1.0}, 0)->step({}, {}));
  }
}

TEST(Optimizer, CountsItsOwnTime) {
  const auto sgd = make_optimizer({}, kCount);
  EXPECT_EQ(sgd->seconds(), 0.0);
  std::vector<float> weights(kCount);
  for (int t = 0; t < 1000; ++t) sgd->step(weights, weights);
  EXPECT_GT(sgd->seconds(), 0.0);
}

TEST(Optimizer, DescribesItsOptionsByName) {
  OptimizerOptions options;
  OptionSet set("optimizer");
  options.describe(set);
  std::vector<std::string> names;
  for (const Option& option : set.all()) {
    names.push_back(option.name);
    EXPECT_FALSE(option.help.empty()) << option.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"optimizer", "lr", "momentum", "nesterov", "weight_decay", "beta1",
                                             "beta2", "eps", "clip_norm"}));
  set.set_pair("optimizer=adamw");
  EXPECT_EQ(options.kind, "adamw");
}

TEST(Optimizer, EachKindHasALearningRateToStartFrom) {
  EXPECT_EQ(OptimizerOptions{.kind = "sgd"}.base_lr(), 0.05);
  EXPECT_EQ(OptimizerOptions{.kind = "adam"}.base_lr(), 0.001);
  EXPECT_EQ(OptimizerOptions{.kind = "adamw"}.base_lr(), 0.001);
  EXPECT_EQ((OptimizerOptions{.kind = "adamw", .lr = 0.25}.base_lr()), 0.25);
}

TEST(Optimizer, SgdsDirectionIsAllThatMomentumWouldEverMakeOfAGradient) {
  for (const bool nesterov : {false, true}) {
    const OptimizerOptions options{.lr = 0.1, .momentum = 0.9, .nesterov = nesterov};
    std::vector<float> w{0}, g{2};
    const auto dense = make_optimizer(options, 1);
    dense->step(w, g);
    for (int t = 0; t < 400; ++t) dense->step(w, std::vector<float>{0});
    const auto own = make_optimizer(options, 1, OptimizerUse::kDirections);
    own->begin_step();
    EXPECT_NEAR(own->direction(0, g, 4) * g[0], -w[0], 1e-5);
  }
}

TEST(Optimizer, AdamsDirectionIsNormedByTheVarianceOfAMeanOfSoManyGradients) {
  const OptimizerOptions options{.kind = "adamw", .lr = 0.01, .beta2 = 0.99, .eps = 1e-6};
  const auto own = make_optimizer(options, kCount, OptimizerUse::kDirections);
  std::vector<double> v(kCount);
  for (std::uint32_t t = 1; t <= kSteps; ++t) {
    own->begin_step();
    auto g = random_vector(t);
    const auto before = g;
    const double factor = own->direction(0, g, 4);
    for (std::size_t i = 0; i < kCount; ++i) {
      v[i] = 0.99 * v[i] + 0.01 * static_cast<double>(before[i]) * before[i];
      const double variance = v[i] / (1 - std::pow(0.99, t)) / 4;
      EXPECT_NEAR(factor * g[i], 0.01 * before[i] / (std::sqrt(variance) + 1e-6), 1e-6) << t;
    }
  }
}

TEST(Optimizer, DirectionsOfAdamRefuseDecayThatIsAddedToTheGradient) {
  const OptimizerOptions adam{.kind = "adam", .weight_decay = 0.01};
  EXPECT_NO_THROW(make_optimizer(adam, 3));
  EXPECT_THROW(make_optimizer(adam, 3, OptimizerUse::kDirections), ConfigError);
}

TEST(Optimizer, DecayOfDirectionsIsAsStrongAsThatOfStepsInTheLongRun) {
  for (const OptimizerOptions& options :
       {OptimizerOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 5e-3},
        OptimizerOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 5e-3},
        OptimizerOptions{.kind = "adamw", .lr = 0.01, .weight_decay = 0.1}}) {
    std::vector<float> stepped{1}, decayed{1};
    const auto dense = make_optimizer(options, 1), own = make_optimizer(options, 1, OptimizerUse::kDirections);
    for (int t = 0; t < 500; ++t) {
      dense->step(stepped, std::vector<float>{0});
      own->decay(0, decayed);
    }
    EXPECT_LT(stepped[0], 0.7F);
    EXPECT_NEAR(decayed[0] / stepped[0], 1.0, 0.01) << options.kind;
  }
}

// Where 0 … 36 lie: five stretches, so that both groups and the rest have several or begin in the middle.
GroupMap mapped() {
  GroupMap map;
  for (const auto& [count, group] : {std::pair{5, 0}, {7, GroupMap::kNone}, {1, 1}, {16, 0}, {8, 1}}) {
    map.append(static_cast<std::size_t>(count), group);
  }
  return map;
}

OptimizerOptions with_groups(OptimizerOptions options) {
  options.groups = {{.lr_factor = 0.5, .weight_decay = 0.0}, {.lr_factor = 3.0}};
  return options;
}

// The options as they are for the elements of one group.
OptimizerOptions options_of(OptimizerOptions options, int group) {
  if (group == 0) options.weight_decay = 0.0;
  if (group >= 0) options.lr *= group == 0 ? 0.5 : 3.0;
  return options;
}

TEST(Optimizer, EveryGroupFollowsTheDefinitionWithItsOwnRateAndDecay) {
  for (const OptimizerOptions& options :
       {OptimizerOptions{.lr = 0.05, .momentum = 0.0, .weight_decay = 0.1},
        OptimizerOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .clip_norm = 0.7},
        OptimizerOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
        OptimizerOptions{.kind = "adam", .lr = 0.01, .weight_decay = 0.1},
        OptimizerOptions{.kind = "adamw", .lr = 0.01, .weight_decay = 0.1, .clip_norm = 0.7}}) {
    std::vector<float> weights = random_vector(1);
    std::vector<Reference> references;
    for (const int group : {-1, 0, 1}) references.emplace_back(options_of(options, group), weights);
    const auto optimizer = make_optimizer(with_groups(options), kCount, OptimizerUse::kSteps, mapped());
    for (std::uint32_t t = 0; t < kSteps; ++t) {
      const std::vector<float> grads = random_vector(100 + t);
      optimizer->step(weights, grads, 0.5F);
      for (Reference& reference : references) reference.step(grads, 0.5);
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      const int group = i < 5 ? 0 : i < 12 ? -1 : i == 12 || i >= 29 ? 1 : 0;
      const double expected = references[static_cast<std::size_t>(group + 1)].weights()[i];
      EXPECT_NEAR(weights[i], expected, 1e-5 * (1 + std::abs(expected))) << options.kind << " element " << i;
    }
  }
}

TEST(Optimizer, DirectionsAndDecayOfAPartHaveTheRatesOfItsGroups) {
  for (const char* kind : {"sgd", "adamw"}) {
    const OptimizerOptions options{.kind = kind, .lr = 0.01, .weight_decay = 0.1};
    const std::size_t offset = 3, count = 30;
    const auto grouped = make_optimizer(with_groups(options), kCount, OptimizerUse::kDirections, mapped());
    grouped->begin_step();
    const auto all = random_vector(2);
    std::vector<float> grads(all.begin() + offset, all.begin() + offset + count), weights(count, 1.0F);
    const float factor = grouped->direction(offset, grads, 4);
    grouped->decay(offset, weights);
    for (const int group : {-1, 0, 1}) {
      const auto alone = make_optimizer(options_of(options, group), kCount, OptimizerUse::kDirections);
      alone->begin_step();
      std::vector<float> own(all.begin() + offset, all.begin() + offset + count), decayed(count, 1.0F);
      const float own_factor = alone->direction(offset, own, 4);
      alone->decay(offset, decayed);
      mapped().each(offset, count, [&](std::size_t begin, std::size_t size, int of) {
        for (std::size_t i = begin - offset; of == group && i < begin - offset + size; ++i) {
          EXPECT_NEAR(factor * grads[i], own_factor * own[i], 1e-6) << kind << " element " << i;
          EXPECT_FLOAT_EQ(weights[i], decayed[i]) << kind << " element " << i;
        }
      });
    }
  }
}

TEST(Optimizer, AnotherFactorOfAGroupActsInTheNextStep) {
  const auto sgd = make_optimizer(with_groups({.lr = 1.0, .momentum = 0.0}), kCount, OptimizerUse::kSteps, mapped());
  std::vector<float> weights(kCount);
  sgd->set_lr_factor(1, 0.0);
  sgd->step(weights, std::vector<float>(kCount, 1.0F));
  EXPECT_EQ(weights[4], -0.5F);
  EXPECT_EQ(weights[5], -1.0F);
  EXPECT_EQ(weights[12], 0.0F);
  EXPECT_THROW(sgd->set_lr_factor(2, 1.0), ConfigError);
  EXPECT_THROW(sgd->set_lr_factor(0, -1.0), ConfigError);
  EXPECT_THROW(sgd->set_lr_factor(0, std::nan("")), ConfigError);
}

TEST(Optimizer, RefusesGroupsThatMakeNoSenseAndThoseWithoutAPlace) {
  const auto refuse = [](const ParameterGroup& group) {
    GroupMap map;
    map.append(2, 0);
    EXPECT_THROW(make_optimizer({.groups = {group}}, 2, OptimizerUse::kSteps, map), ConfigError);
  };
  refuse({.lr_factor = -1});
  refuse({.lr_factor = std::nan("")});
  refuse({.weight_decay = -0.1});
  refuse({.weight_decay = std::numeric_limits<double>::infinity()});
  EXPECT_THROW(make_optimizer({.groups = {{}}}, 2), Error);
  OptimizerOptions adam{.kind = "adam"};
  adam.groups = {{.weight_decay = 0.1}};
  EXPECT_THROW(make_optimizer(adam, kCount, OptimizerUse::kDirections, mapped()), ConfigError);
}

TEST(Optimizer, HoldsOnlyTheStateThatIsUsed) {
  struct Sizes final : StateVisitor {
    std::size_t floats_held = 0;
    void floats(std::string_view, std::span<float> values) override { floats_held += values.size(); }
    void integer(std::string_view, std::int64_t&) override {}
  };
  const auto held = [](const char* kind, OptimizerUse use) {
    Sizes sizes;
    make_optimizer({.kind = kind}, 10, use)->visit(sizes);
    return sizes.floats_held;
  };
  EXPECT_EQ(held("sgd", OptimizerUse::kSteps), 10U);
  EXPECT_EQ(held("sgd", OptimizerUse::kDirections), 0U);
  EXPECT_EQ(held("adamw", OptimizerUse::kSteps), 20U);
  EXPECT_EQ(held("adamw", OptimizerUse::kDirections), 10U);
  EXPECT_EQ(held("adamw", OptimizerUse::kNothing), 0U);
}

TEST(Optimizer, ItsMomentumIsTheVelocityOfSgdAndTheFirstMomentOfAdam) {
  std::vector<float> w = {1, 2}, g = {4, 8};
  const auto sgd = make_optimizer({.kind = "sgd", .momentum = 0.5}, 2);
  sgd->step(w, g);
  EXPECT_EQ(sgd->momentum()[1], 8);
  for (const char* kind : {"adam", "adamw"}) {
    const auto adam = make_optimizer({.kind = kind, .beta1 = 0.75}, 2);
    adam->step(w, g);
    EXPECT_EQ(adam->momentum()[1], 2) << kind;
  }
  EXPECT_TRUE(make_optimizer({.kind = "sgd", .momentum = 0}, 2)->momentum().empty());
}

}  // namespace
}  // namespace slipstream
