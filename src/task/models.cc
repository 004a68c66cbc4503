// SPDX-License-Identifier: Apache-2.0
#include "task/models.h"

#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <cmath>
#include <limits>

#include "task/task_options.h"

namespace slipstream {
namespace {

namespace nn = torch::nn;

class Mlp final : public Net {
 public:
  explicit Mlp(const ImageShape& shape)
      : first_(shape.channels * shape.height * shape.width, 1024), last_(1024, shape.classes) {
    register_module("first", first_);
    register_module("second", second_);
    register_module("last", last_);
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(first_(x.flatten(1)));
    return last_(torch::relu(second_(x)));
  }

 private:
  nn::Linear first_, second_{1024, 1024}, last_;
};

class Cnn final : public Net {
 public:
  explicit Cnn(const ImageShape& shape)
      : first_(nn::Conv2dOptions(shape.channels, 32, 5).padding(2)),
        hidden_(64 * (shape.height / 4) * (shape.width / 4), 512),
        last_(512, shape.classes) {
    register_module("first", first_);
    register_module("second", second_);
    register_module("hidden", hidden_);
    register_module("last", last_);
  }

  // Pooling before ReLU: the two commute, values and gradients, and this way ReLU has a quarter of the work.
  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(torch::max_pool2d(first_(x), 2));
    x = torch::relu(torch::max_pool2d(second_(x), 2));
    return last_(torch::relu(hidden_(x.flatten(1))));
  }

 private:
  nn::Conv2d first_, second_{nn::Conv2dOptions(32, 64, 5).padding(2)};
  nn::Linear hidden_, last_;
};

nn::Conv2d conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride) {
  nn::Conv2d conv(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false));
  nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
  return conv;
}

class ResidualBlock final : public Net {
 public:
  ResidualBlock(std::int64_t in, std::int64_t out)
      : stride_(in == out ? 1 : 2),
        new_channels_(out - in),
        conv1_(register_module("conv1", conv3x3(in, out, stride_))),
        norm1_(register_module("norm1", nn::BatchNorm2d(out))),
        conv2_(register_module("conv2", conv3x3(out, out, 1))),
        norm2_(register_module("norm2", nn::BatchNorm2d(out))) {}

  torch::Tensor forward(torch::Tensor x) override {
    torch::Tensor shortcut = x;
    if (stride_ > 1) {
      shortcut = x.slice(2, 0, {}, stride_).slice(3, 0, {}, stride_);
      shortcut = torch::constant_pad_nd(shortcut, {0, 0, 0, 0, new_channels_ / 2, new_channels_ - new_channels_ / 2});
    }
    x = torch::relu(norm1_(conv1_(x)));
    return torch::relu(norm2_(conv2_(x)) + shortcut);
  }

 private:
  std::int64_t stride_, new_channels_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d norm2_;
};

class ResNet20 final : public Net {
 public:
  explicit ResNet20(const ImageShape& shape)
      : conv_(register_module("conv", conv3x3(shape.channels, 16, 1))),
        norm_(register_module("norm", nn::BatchNorm2d(16))),
        last_(64, shape.classes) {
    std::int64_t in = 16;
    for (const std::int64_t out : {16, 32, 64}) {
      for (int i = 0; i < 3; ++i, in = out) {
        blocks_.push_back(
            register_module(fmt::format("block{}", blocks_.size()), std::make_shared<ResidualBlock>(in, out)));
      }
    }
    register_module("last", last_);  // after the blocks: parameters are in the order of their use
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(norm_(conv_(x)));
    for (const auto& block : blocks_) x = block->forward(x);
    return last_(x.mean({2, 3}));
  }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d norm_;
  nn::Linear last_;
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
};

class TransformerBlock final : public nn::Module {
 public:
  explicit TransformerBlock(const TransformerShape& shape)
      : heads_(shape.heads),
        norm1_(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        query_key_value_(register_module("query_key_value", nn::Linear(shape.width, 3 * shape.width))),
        attended_(register_module("attended", nn::Linear(shape.width, shape.width))),
        norm2_(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        wide_(register_module("wide", nn::Linear(shape.width, 4 * shape.width))),
        narrow_(register_module("narrow", nn::Linear(4 * shape.width, shape.width))) {}

  // `future` is true where a position (row) may not look (column).
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& future) {
    x = x + attend(norm1_(x), future);
    return x + narrow_(torch::gelu(wide_(norm2_(x))));
  }

  // Both end on the residual stream, which sums 2 * depth of them.
  void scale_residuals(double factor) {
    torch::NoGradGuard guard;
    attended_->weight.mul_(factor);
    narrow_->weight.mul_(factor);
  }

 private:
  torch::Tensor attend(const torch::Tensor& x, const torch::Tensor& future) {
    const std::int64_t n = x.size(0), length = x.size(1), width = x.size(2), head_width = width / heads_;
    const auto parts = query_key_value_(x).view({n, length, 3, heads_, head_width}).permute({2, 0, 3, 1, 4});
    const torch::Tensor query = parts[0], key = parts[1], value = parts[2];  // [n, heads, length, head_width]
    torch::Tensor scores = query.matmul(key.transpose(2, 3)) / std::sqrt(static_cast<double>(head_width));
    scores = scores.masked_fill(future, -std::numeric_limits<float>::infinity());
    const torch::Tensor mixed = torch::softmax(scores, -1).matmul(value);
    return attended_(mixed.transpose(1, 2).reshape({n, length, width}));
  }

  std::int64_t heads_;
  nn::LayerNorm norm1_;
  nn::Linear query_key_value_, attended_;
  nn::LayerNorm norm2_;
  nn::Linear wide_, narrow_;
};

class Transformer final : public Net {
 public:
  explicit Transformer(const TransformerShape& shape)
      : symbols_(register_module("symbols", nn::Embedding(shape.symbols, shape.width))),
        positions_(register_module("positions", nn::Embedding(shape.context, shape.width))),
        norm_(nn::LayerNormOptions({shape.width})),
        head_(nn::LinearOptions(shape.width, shape.symbols).bias(false)),
        future_(torch::ones({shape.context, shape.context}, torch::kBool).triu(1)),
        places_(torch::arange(shape.context)) {
    for (std::int64_t i = 0; i < shape.depth; ++i) {
      blocks_.push_back(register_module(fmt::format("block{}", i), std::make_shared<TransformerBlock>(shape)));
    }
    register_module("norm", norm_);
    register_module("head", head_);
    torch::NoGradGuard guard;
    for (auto& parameter : named_parameters()) {
      if (parameter->dim() == 2) parameter->normal_(0, 0.02);
      if (parameter.key().ends_with("bias")) parameter->zero_();
    }
    for (const auto& block : blocks_) block->scale_residuals(1 / std::sqrt(2.0 * static_cast<double>(shape.depth)));
  }

  torch::Tensor forward(torch::Tensor tokens) override {
    const std::int64_t length = tokens.size(1);
    check(length <= places_.size(0), "{} tokens in a context of {}", length, places_.size(0));
    torch::Tensor x = symbols_(tokens) + positions_(places_.slice(0, 0, length));
    const torch::Tensor future = future_.slice(0, 0, length).slice(1, 0, length);
    for (const auto& block : blocks_) x = block->forward(x, future);
    return head_(norm_(x));
  }

 private:
  nn::Embedding symbols_, positions_;
  nn::LayerNorm norm_;
  nn::Linear head_;
  torch::Tensor future_, places_;  // constants, so neither parameters nor buffers: they are not part of the state
  std::vector<std::shared_ptr<TransformerBlock>> blocks_;
};

}  // namespace

std::shared_ptr<Net> make_image_model(const std::string& name, const ImageShape& shape) {
  if (name == "mlp") return std::make_shared<Mlp>(shape);
  if (name == "cnn") {
    if (shape.height < 4 || shape.width < 4) {
      fail<ConfigError>("model = cnn needs images of at least 4 x 4 pixels, these have {} x {}; use model = mlp",
                        shape.height, shape.width);
    }
    return std::make_shared<Cnn>(shape);
  }
  if (name == "resnet20") return std::make_shared<ResNet20>(shape);
  const std::string near = nearest(name, model_names("images"));
  fail<ConfigError>("model = {} is unknown; for images there are {}{}", name, fmt::join(model_names("images"), ", "),
                    near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

std::shared_ptr<Net> make_transformer(const TransformerShape& shape) {
  check(shape.symbols >= 1 && shape.heads >= 1 && shape.width % shape.heads == 0, "a transformer of width {}, {} heads",
        shape.width, shape.heads);
  return std::make_shared<Transformer>(shape);
}

}  // namespace slipstream
