// SPDX-License-Identifier: Apache-2.0
//
// The models of the built-in tasks, as torch modules. Weights come from torch's global generator at construction: after
// equal torch::manual_seed, equal models. They compute only; losses, data and devices (the processor) are the task's.
//
//   mlp          pixels → 1024 → 1024 → classes, ReLU between
//   cnn          conv 5x5x32, ReLU, max-pool 2, conv 5x5x64, ReLU, max-pool 2, → 512, ReLU, → classes
//   resnet20     He et al. 2016, section 4.2: conv, 3 stages of 3 blocks (16, 32, 64 channels), BatchNorm, shortcuts
//                without parameters (option A: every second pixel, new channels zero), mean over the image, → classes
//   transformer  decoder-only character model: learned positions, pre-LayerNorm blocks of causal attention and a GELU
//                MLP (4 times the width), a last LayerNorm, and a head of its own (not tied to the embedding)
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>

namespace slipstream {

class Net : public torch::nn::Module {
 public:
  // Images: floats [n, channels, height, width] → logits [n, classes].
  // Text: int64 tokens [n, length], length at most the context → logits [n, length, symbols].
  virtual torch::Tensor forward(torch::Tensor input) = 0;
};

struct ImageShape {
  std::int64_t channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t classes = 10;
};

struct TransformerShape {
  std::int64_t symbols = 0;
  std::int64_t width = 128;
  std::int64_t depth = 2;
  std::int64_t heads = 4;
  std::int64_t context = 64;
};

// mlp, cnn or resnet20; ConfigError for another name or images too small for the model.
std::shared_ptr<Net> make_image_model(const std::string& name, const ImageShape& shape);
std::shared_ptr<Net> make_transformer(const TransformerShape& shape);

}  // namespace slipstream
