// SPDX-License-Identifier: Apache-2.0
//
// Writes tensors to a file for Python's torch.load: a dictionary of name → tensor, like model.pt, which torch.load
// reads with its default weights_only. No torch in this header.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace slipstream {

// ConfigError where it cannot be written, or a type is unknown to torch.
void write_python_model(const std::string& path, const std::vector<TensorView>& tensors);

}  // namespace slipstream
