// SPDX-License-Identifier: Apache-2.0
//
// ModuleTensors: what Slipstream needs to know about a module, written in C++ or in Python: its parameters and buffers
// by name, in registration order. A tied parameter may be listed once or under each of its names.
#pragma once

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

namespace slipstream {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct ModuleTensors {
  NamedTensors parameters, buffers;

  static ModuleTensors of(const torch::nn::Module& module) {
    ModuleTensors all;
    for (const auto& item : module.named_parameters()) all.parameters.emplace_back(item.key(), item.value());
    for (const auto& item : module.named_buffers()) all.buffers.emplace_back(item.key(), item.value());
    return all;
  }
};

}  // namespace slipstream
