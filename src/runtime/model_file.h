// SPDX-License-Identifier: Apache-2.0
//
// Torch's tensors and the files they are in: a trained model into a module that is built like it, and single tensors to and
// from the archives that checkpoints are made of.
#pragma once

#include <slipstream/model/module_tensors.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "checkpoint/state_archive.h"

namespace slipstream {

// `where`: model.pt (ours or torch.save's), a safetensors file, a checkpoint or a folder of some, or the --out of a run.
// ConfigError, with the name, where a tensor of the module is missing there or has another shape, or one is left over;
// DataError where the file is not what it should be.
void load_model(const std::string& where, torch::nn::Module& module);

// Copies with torch's types. ConfigError where torch does not have one.
NamedTensors as_torch(const std::vector<TensorView>& tensors);
// An archive of this tensor alone, and back. ConfigError where its type is in no file, or there is none of its size.
StateArchive archive_of(const std::string& name, const torch::Tensor& tensor);
void restore_tensor(const StateArchive& state, const std::string& name, torch::Tensor& tensor);

}  // namespace slipstream
