// SPDX-License-Identifier: Apache-2.0
#include "runtime/model_file.h"

#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <span>

#include "checkpoint/folder.h"
#include "model/torch_model.h"
#include "runtime/convert.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;

std::span<std::byte> bytes_of(const torch::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

// Torch's types and the matching types in files.
constexpr std::pair<torch::ScalarType, Dtype> kTypes[] = {
    {torch::kFloat, Dtype::kF32},     {torch::kDouble, Dtype::kF64}, {torch::kHalf, Dtype::kF16},
    {torch::kBFloat16, Dtype::kBf16}, {torch::kLong, Dtype::kI64},   {torch::kInt, Dtype::kI32},
    {torch::kShort, Dtype::kI16},     {torch::kChar, Dtype::kI8},    {torch::kByte, Dtype::kU8},
    {torch::kBool, Dtype::kBool}};

std::optional<Dtype> type_of(const torch::Tensor& tensor) {
  for (const auto& [torchs, ours] : kTypes) {
    if (torchs == tensor.scalar_type()) return ours;
  }
  return {};
}

NamedTensors tensors_of(const fs::path& where) {
  std::error_code ignored;
  if (fs::is_directory(where, ignored)) {
    if (fs::exists(where / "model.pt", ignored)) return read_state_dict((where / "model.pt").string());
    if (fs::exists(where / "checkpoints", ignored)) return tensors_of(where / "checkpoints");
    const fs::path checkpoint = find_checkpoint(where);
    const CheckpointMeta meta = CheckpointMeta::read(checkpoint);
    const StateArchive model = read_model(checkpoint, meta);
    return as_torch(model.tensors(meta.module_shapes()));
  }
  if (where.extension() == ".safetensors") return as_torch(SafetensorsFile(where).tensors());
  return read_state_dict(where.string());
}

}  // namespace

// An archive with this tensor as its only entry.
StateArchive archive_of(const std::string& name, const torch::Tensor& tensor) {
  const auto type = type_of(tensor);
  if (!type) fail<ConfigError>("'{}' is of a type that checkpoints do not have", name);
  const torch::Tensor packed = tensor.detach().cpu().contiguous();
  StateArchive one;
  one.add({{name, *type, tensor.sizes().vec(), bytes_of(packed)}});
  return one;
}

// Copies the checkpoint's entry back into the tensor.
void restore_tensor(const StateArchive& state, const std::string& name, torch::Tensor& tensor) {
  torch::NoGradGuard no_grad;
  for (const TensorView& saved : state.tensors({})) {
    if (saved.name != name) continue;
    torch::Tensor packed = torch::empty(tensor.sizes(), tensor.options().device(torch::kCPU));
    const auto type = type_of(tensor);
    if (!type || saved.dtype != *type || saved.data.size() != packed.nbytes()) break;
    std::copy(saved.data.begin(), saved.data.end(), bytes_of(packed).begin());
    tensor.copy_(packed);
    return;
  }
  fail<ConfigError>("saved state has no '{}' of {} bytes; resume with the model it was saved with", name,
                    tensor.nbytes());
}

// Copies with torch's types.
NamedTensors as_torch(const std::vector<TensorView>& tensors) {
  NamedTensors named;
  for (const TensorView& tensor : tensors) {
    const auto type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const auto& pair) { return pair.second == tensor.dtype; });
    if (type == std::end(kTypes)) {
      fail<ConfigError>("tensor '{}' is of type {}, which torch does not have", tensor.name, to_text(tensor.dtype));
    }
    torch::Tensor copy = torch::empty(tensor.shape, type->first);
    std::copy(tensor.data.begin(), tensor.data.end(), bytes_of(copy).begin());
    named.emplace_back(tensor.name, copy);
  }
  return named;
}

void write_python_model(const std::string& path, const std::vector<TensorView>& tensors) {
  write_state_dict(path, as_torch(tensors));
}

void load_model(const std::string& where, torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> found;
  for (auto& [name, tensor] : tensors_of(where)) found[name] = tensor;
  const auto take = [&](const std::string& name, torch::Tensor& target) {
    const auto one = found.find(name);
    if (one == found.end()) fail<ConfigError>("{} has no '{}'; is it of another model?", where, name);
    if (one->second.sizes() != target.sizes()) {
      fail<ConfigError>("{} has '{}' of shape [{}] where the model has [{}]; is it of another model?", where, name,
                        fmt::join(one->second.sizes(), ", "), fmt::join(target.sizes(), ", "));
    }
    target.copy_(one->second);
    found.erase(one);
  };
  for (auto& parameter : module.named_parameters()) take(parameter.key(), parameter.value());
  for (auto& buffer : module.named_buffers()) take(buffer.key(), buffer.value());
  if (!found.empty()) {
    fail<ConfigError>("{} has '{}', which the model has not; is it of another model?", where, found.begin()->first);
  }
}

}  // namespace slipstream
