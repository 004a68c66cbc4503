// SPDX-License-Identifier: Apache-2.0
//
// Torch's tensors and the files they are in: loads a trained model into a module of the same structure, and copies
// single tensors to and from the archives that checkpoints consist of.
#pragma once

#include <slipstream/model/module_tensors.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "checkpoint/state_archive.h"

namespace slipstream {

// `where`: model.pt (ours or torch.save's), a safetensors file, a checkpoint or a folder of some, or the --out of a
// run. ConfigError, with the name, where a tensor of the module is missing there or has another shape, or the file has
// one too many; DataError where the file is malformed.
void load_model(const std::string& where, torch::nn::Module& module);

// Copies as torch tensors. ConfigError for a type that torch does not have.
NamedTensors as_torch(const std::vector<TensorView>& tensors);
// An archive of this tensor alone, and back. ConfigError for a type that files do not have, or if no entry fits its
// size.
StateArchive archive_of(const std::string& name, const torch::Tensor& tensor);
void restore_tensor(const StateArchive& state, const std::string& name, torch::Tensor& tensor);

}  // namespace slipstream
