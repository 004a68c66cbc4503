// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "task/files.h"
#include "task/models.h"

namespace slipstream {
namespace {

using test::expect_error;

constexpr ImageShape kMnist{1, 28, 28, 10};
constexpr ImageShape kCifar{3, 32, 32, 10};

std::int64_t parameters(const Net& net) {
  std::int64_t sum = 0;
  for (const torch::Tensor& parameter : net.parameters()) sum += parameter.numel();
  return sum;
}

TransformerShape small_transformer() { return {.symbols = 11, .width = 16, .depth = 2, .heads = 4, .context = 8}; }

TEST(Models, HaveTheirKnownNumbersOfParameters) {
  EXPECT_EQ(parameters(*make_image_model("mlp", kMnist)), 1863690);      // 1.86M
  EXPECT_EQ(parameters(*make_image_model("cnn", kMnist)), 1663370);      // 1.66M
  EXPECT_EQ(parameters(*make_image_model("resnet20", kCifar)), 269722);  // 0.27M
}

TEST(Models, TransformerHasAnUntiedHead) {
  const TransformerShape shape = small_transformer();
  const std::int64_t w = shape.width;
  const std::int64_t block = 2 * 2 * w + (w * 3 * w + 3 * w) + (w * w + w) + (w * 4 * w + 4 * w) + (4 * w * w + w);
  EXPECT_EQ(parameters(*make_transformer(shape)), 2 * shape.symbols * w + shape.context * w + 2 * block + 2 * w);
}

TEST(Models, MapImagesOfEitherSizeToLogits) {
  for (const char* name : {"mlp", "cnn", "resnet20"}) {
    for (const ImageShape& shape : {kMnist, kCifar, ImageShape{2, 13, 7, 3}}) {
      const auto net = make_image_model(name, shape);
      const torch::Tensor logits = net->forward(torch::randn({5, shape.channels, shape.height, shape.width}));
      EXPECT_EQ(logits.sizes(), torch::IntArrayRef({5, shape.classes})) << name;
      EXPECT_TRUE(torch::isfinite(logits).all().item<bool>()) << name;
    }
  }
}

TEST(Models, EveryParameterGetsAGradient) {
  torch::manual_seed(1);
  for (const char* name : {"mlp", "cnn", "resnet20"}) {
    const auto net = make_image_model(name, kMnist);
    net->forward(torch::randn({4, 1, 28, 28})).square().sum().backward();
    for (const auto& parameter : net->named_parameters()) {
      ASSERT_TRUE(parameter->grad().defined()) << name << " " << parameter.key();
      EXPECT_GT(parameter->grad().abs().max().item<float>(), 0) << name << " " << parameter.key();
    }
  }
}

TEST(Models, AreEqualAfterEqualSeeds) {
  for (const char* name : {"mlp", "cnn", "resnet20"}) {
    torch::manual_seed(5);
    const auto a = make_image_model(name, kMnist)->parameters();
    torch::manual_seed(5);
    const auto b = make_image_model(name, kMnist)->parameters();
    torch::manual_seed(6);
    const auto c = make_image_model(name, kMnist)->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << name;
    EXPECT_FALSE(a[0].equal(c[0])) << name;
  }
}

TEST(Models, ResNetShortcutKeepsEverySecondPixelAndAddsZeroChannels) {
  torch::manual_seed(2);
  const auto net = make_image_model("resnet20", kCifar);
  // With the last BatchNorm of every block at zero, blocks are their shortcuts: the net sees 16 channels, 48 are zero.
  torch::NoGradGuard guard;
  for (auto& parameter : net->named_parameters()) {
    if (parameter.key().find("norm2") != std::string::npos) parameter->zero_();
  }
  net->eval();
  const torch::Tensor images = torch::randn({2, 3, 32, 32});
  torch::Tensor changed = images.clone();
  const torch::Tensor before = net->forward(images);
  // Every fourth pixel of rows and columns survives two halvings; it sees the 3 x 3 pixels around it, so not this one.
  changed.slice(2, 2, {}, 4).add_(1);
  EXPECT_TRUE(before.equal(net->forward(changed)));
  changed.slice(2, 1, {}, 4).add_(1);
  EXPECT_FALSE(before.equal(net->forward(changed)));
  // Channel 0 … 7 → 8 … 23 → 24 … 39: weights on other channels of the last layer do not matter.
  torch::Tensor last = net->named_parameters()["last.weight"];
  last.slice(1, 0, 24).fill_(100);
  last.slice(1, 40, 64).fill_(100);
  EXPECT_TRUE(before.equal(net->forward(images)));
}

TEST(Models, TransformerDoesNotSeeTheFuture) {
  torch::manual_seed(3);
  const auto net = make_transformer(small_transformer());
  const torch::Tensor tokens = torch::randint(11, {3, 8}, torch::kInt64);
  const torch::Tensor before = net->forward(tokens);
  EXPECT_EQ(before.sizes(), torch::IntArrayRef({3, 8, 11}));
  for (std::int64_t place = 0; place < 8; ++place) {
    torch::Tensor changed = tokens.clone();
    changed.select(1, place).add_(1).remainder_(11);
    const torch::Tensor after = net->forward(changed);
    EXPECT_TRUE(before.slice(1, 0, place).equal(after.slice(1, 0, place))) << place;
    for (std::int64_t later = place; later < 8; ++later) {
      EXPECT_FALSE(before.select(1, later).equal(after.select(1, later))) << place << " " << later;
    }
  }
}

TEST(Models, TransformerStartsNearTheUniformGuess) {
  torch::manual_seed(4);
  const auto net = make_transformer(small_transformer());
  const torch::Tensor tokens = torch::randint(11, {16, 8}, torch::kInt64);
  const torch::Tensor logits = net->forward(tokens).flatten(0, 1);
  EXPECT_NEAR(torch::cross_entropy_loss(logits, tokens.flatten()).item<float>(), std::log(11.0), 0.1);
}

TEST(Models, UnknownNamesAndTooSmallImagesAreErrors) {
  expect_error<ConfigError>([] { make_image_model("cn", kMnist); }, {"model = cn ", "did you mean cnn?"});
  expect_error<ConfigError>([] { make_image_model("cnn", {1, 3, 28, 10}); }, {"cnn", "3 x 28"});
}

}  // namespace
}  // namespace slipstream
