// SPDX-License-Identifier: Apache-2.0
//
// TorchModel: ties a module's tensors to a FlatModel. Every trainable parameter and its gradient become views of the
// flat buffers (nothing is copied after construction), and an autograd hook reports each gradient the moment it is
// complete.
//
// Parameters that are not float32 on the CPU are *staged*: they stay where they are, the flat weights are their float32
// masters, each gradient is copied into the flat buffer when it is complete (and freed after the step), and publish()
// copies the weights back. Copies wait for the device; none of this was tried on a GPU.
//
// A gradient of the others that was freed or put elsewhere (zero_grad(true), torch 2's default;
// p.mutable_grad() = …) is copied into its place, at the price of that copy, and the view is attached again. Parameters
// that share one tensor share one slot. Training thread only (CPU autograd runs there too).
#pragma once

#include <slipstream/model/flat_model.h>
#include <slipstream/model/module_tensors.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace slipstream {

// A file that Python's torch.load reads: a dictionary of name → tensor. Written atomically.
void write_state_dict(const std::string& path, const NamedTensors& tensors);
// A dictionary of tensors that this or Python's torch.save wrote; DataError, with the file, where it is none.
NamedTensors read_state_dict(const std::string& path);

class TorchModel {
 public:
  // `stage`: all parameters are.
  explicit TorchModel(const ModuleTensors& module, bool stage = false);
  explicit TorchModel(const torch::nn::Module& module) : TorchModel(ModuleTensors::of(module)) {}
  ~TorchModel();
  TorchModel(const TorchModel&) = delete;
  TorchModel& operator=(const TorchModel&) = delete;

  FlatModel& flat() { return *flat_; }
  bool stages() const { return stages_; }  // at least one parameter
  void publish();                          // the flat weights are the module's from now on

  // `on_ready(slot)` is called during backward, once per slot and backward pass. What it throws ends the calls, not
  // backward: require_backward() throws it until unseal().
  void on_gradient(std::function<void(std::size_t)> on_ready);
  void require_backward() const;
  void note_failure(std::exception_ptr failure);  // the same for one that came elsewhere
  // require_backward(), then brings gradients that are elsewhere into the flat buffer; one that was freed is zero. Throws
  // ConfigError naming a parameter whose gradient has changed since seal().
  void settle_gradients();
  // Zeroes what backward has added since the last call or unseal().
  void zero_gradients();

  // The gradients of slots [first, end) are in use: settle_gradients() notices torch operations that change them. Until
  // unseal(). Changes through FlatModel::grads(), which are ours, do not count.
  void seal(std::size_t first, std::size_t end);
  void unseal();

  c10::IntArrayRef shape(std::size_t slot) const;

  // What is neither trained nor flat: buffers (BatchNorm's running statistics) and frozen parameters.
  std::vector<torch::Tensor>& others() { return others_; }
  const std::vector<std::string>& other_names() const { return other_names_; }

  // Weights and buffers as Python's torch.load reads them: a dictionary of name → tensor.
  void save_state_dict(const std::string& path) const;

 private:
  struct Hooks;

  const ModuleTensors module_;
  std::vector<torch::Tensor> others_;  // buffers, frozen parameters
  std::vector<std::string> other_names_;
  std::unique_ptr<FlatModel> flat_;
  bool stages_ = false;
  std::shared_ptr<Hooks> hooks_;        // shared with the autograd graph
  std::vector<std::int64_t> versions_;  // by slot: of the gradient when it was sealed; -1: it is not
};

}  // namespace slipstream
