// SPDX-License-Identifier: Apache-2.0
//
// Tensors as a file for Python's torch.load (with weights_only as well): a dictionary of name → tensor. No torch in this
// header.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace slipstream {

// ConfigError where it cannot be written, or a type is unknown to torch.
void write_python_model(const std::string& path, const std::vector<TensorView>& tensors);

}  // namespace slipstream
