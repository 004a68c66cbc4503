// SPDX-License-Identifier: Apache-2.0
//
// torch::optim as the oracle: 50 steps of the same gradients through both, for every combination of options.
#include <gtest/gtest.h>
#include <slipstream/optim/optimizer.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

namespace slipstream {
namespace {

constexpr std::int64_t kCount = 1003;
constexpr int kSteps = 50;

std::unique_ptr<torch::optim::Optimizer> torch_twin(const OptimizerOptions& o, const torch::Tensor& weights) {
  const std::vector<torch::Tensor> parameters = {weights};
  if (o.kind == "sgd") {
    return std::make_unique<torch::optim::SGD>(
        parameters,
        torch::optim::SGDOptions(o.lr).momentum(o.momentum).nesterov(o.nesterov).weight_decay(o.weight_decay));
  }
  const std::tuple<double, double> betas{o.beta1, o.beta2};
  if (o.kind == "adam") {
    return std::make_unique<torch::optim::Adam>(
        parameters, torch::optim::AdamOptions(o.lr).betas(betas).eps(o.eps).weight_decay(o.weight_decay));
  }
  return std::make_unique<torch::optim::AdamW>(
      parameters, torch::optim::AdamWOptions(o.lr).betas(betas).eps(o.eps).weight_decay(o.weight_decay));
}

void expect_equals_torch(const OptimizerOptions& options) {
  torch::manual_seed(7);
  const float scale = 0.25F;
  torch::Tensor theirs = torch::randn({kCount}).set_requires_grad(true);
  std::vector<float> ours(theirs.data_ptr<float>(), theirs.data_ptr<float>() + kCount);
  const auto torch_optimizer = torch_twin(options, theirs);
  const auto optimizer = make_optimizer(options, kCount);
  for (int t = 0; t < kSteps; ++t) {
    const torch::Tensor gradient = torch::randn({kCount});
    theirs.mutable_grad() = gradient * scale;
    if (options.clip_norm > 0) torch::nn::utils::clip_grad_norm_({theirs}, options.clip_norm);
    torch_optimizer->step();
    optimizer->step(ours, {gradient.data_ptr<float>(), static_cast<std::size_t>(kCount)}, scale);
  }
  double worst = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double want = theirs.data_ptr<float>()[i];
    worst = std::max(worst, std::abs(ours[static_cast<std::size_t>(i)] - want) / (1 + std::abs(want)));
  }
  EXPECT_LT(worst, 2e-6) << options.kind << " momentum " << options.momentum << " nesterov " << options.nesterov
                         << " weight_decay " << options.weight_decay << " clip_norm " << options.clip_norm;
}

TEST(OptimizerTorch, SgdEqualsTorchForEveryCombination) {
  for (const double momentum : {0.0, 0.5, 0.9}) {
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0.0) continue;
      for (const double decay : {0.0, 5e-4, 0.1}) {
        for (const double clip : {0.0, 1.0, 1e6}) {
          expect_equals_torch(
              {.lr = 0.03, .momentum = momentum, .nesterov = nesterov, .weight_decay = decay, .clip_norm = clip});
        }
      }
    }
  }
}

TEST(OptimizerTorch, AdamAndAdamwEqualTorchForEveryCombination) {
  for (const char* kind : {"adam", "adamw"}) {
    for (const double decay : {0.0, 0.01, 0.3}) {
      for (const double clip : {0.0, 1.0}) {
        for (const double beta1 : {0.0, 0.9}) {
          expect_equals_torch({.kind = kind, .lr = 0.003, .weight_decay = decay, .beta1 = beta1, .clip_norm = clip});
          expect_equals_torch({.kind = kind,
                               .lr = 0.003,
                               .weight_decay = decay,
                               .beta1 = beta1,
                               .beta2 = 0.9,
                               .eps = 1e-4,
                               .clip_norm = clip});
        }
      }
    }
  }
}

// The same three tensors as torch's parameter groups and as stretches of one flat range.
TEST(OptimizerTorch, GroupsEqualTorchsParameterGroups) {
  using torch::optim::OptimizerParamGroup;
  constexpr std::int64_t kSizes[] = {500, 3, 500};
  constexpr double kLr = 0.01, kFactor[] = {1.0, 0.25, 4.0}, kDecay[] = {0.1, 0.0, 0.3};
  for (const char* kind : {"sgd", "adam", "adamw"}) {
    torch::manual_seed(7);
    std::vector<torch::Tensor> theirs;
    std::vector<OptimizerParamGroup> groups;
    for (std::size_t i = 0; i < 3; ++i) {
      theirs.push_back(torch::randn({kSizes[i]}).set_requires_grad(true));
      const double lr = kLr * kFactor[i], decay = kDecay[i];
      std::unique_ptr<torch::optim::OptimizerOptions> own;
      if (kind == std::string("sgd")) {
        own = std::make_unique<torch::optim::SGDOptions>(
            torch::optim::SGDOptions(lr).momentum(0.9).nesterov(true).weight_decay(decay));
      } else if (kind == std::string("adam")) {
        own = std::make_unique<torch::optim::AdamOptions>(torch::optim::AdamOptions(lr).weight_decay(decay));
      } else {
        own = std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(lr).weight_decay(decay));
      }
      groups.emplace_back(std::vector<torch::Tensor>{theirs.back()}, std::move(own));
    }
    std::unique_ptr<torch::optim::Optimizer> twin;
    if (kind == std::string("sgd")) twin = std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(kLr));
    if (kind == std::string("adam")) twin = std::make_unique<torch::optim::Adam>(groups);
    if (kind == std::string("adamw")) twin = std::make_unique<torch::optim::AdamW>(groups);

    OptimizerOptions options{
        .kind = kind, .lr = kLr, .nesterov = kind == std::string("sgd"), .weight_decay = kDecay[0]};
    options.groups = {{.lr_factor = kFactor[1], .weight_decay = kDecay[1]},
                      {.lr_factor = kFactor[2], .weight_decay = kDecay[2]}};
    GroupMap map;
    for (int i = 0; i < 3; ++i) map.append(static_cast<std::size_t>(kSizes[i]), i - 1);
    const auto optimizer = make_optimizer(options, kCount, OptimizerUse::kSteps, map);
    const torch::Tensor first = torch::cat(theirs).detach();
    std::vector<float> ours(first.data_ptr<float>(), first.data_ptr<float>() + kCount);
    for (int t = 0; t < kSteps; ++t) {
      const torch::Tensor gradient = torch::randn({kCount});
      std::int64_t at = 0;
      for (std::size_t i = 0; i < 3; at += kSizes[i++]) {
        theirs[i].mutable_grad() = gradient.slice(0, at, at + kSizes[i]).clone();
      }
      twin->step();
      optimizer->step(ours, {gradient.data_ptr<float>(), static_cast<std::size_t>(kCount)});
    }
    const torch::Tensor want = torch::cat(theirs).detach(), got = torch::from_blob(ours.data(), {kCount});
    EXPECT_LT(((got - want).abs() / (1 + want.abs())).max().item<double>(), 4e-6) << kind;
    EXPECT_GT((got - first).abs().max().item<double>(), 0.1) << kind;
  }
}

TEST(OptimizerTorch, ClippingAZeroGradientEqualsTorch) {
  torch::Tensor theirs = torch::zeros({5}).set_requires_grad(true);
  theirs.mutable_grad() = torch::zeros({5});
  torch::nn::utils::clip_grad_norm_({theirs}, 1.0);
  std::vector<float> weights(5), grads(5);
  make_optimizer({.clip_norm = 1.0}, 5)->step(weights, grads);
  EXPECT_TRUE(torch::equal(theirs.grad(), torch::zeros({5})));
  EXPECT_EQ(weights, std::vector<float>(5));
}

}  // namespace
}  // namespace slipstream
