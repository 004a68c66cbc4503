// SPDX-License-Identifier: Apache-2.0
//
// TorchModel: ties a module's tensors to a FlatModel. Every trainable parameter and its gradient become views of the
// flat buffers (nothing is copied after construction), and an autograd hook reports each gradient the moment it is
// complete.
//
// Parameters that are not float32 on the CPU are *staged*: they stay where they are, the flat weights are their float32
// masters, each gradient is copied into the flat buffer when it is complete (and freed after the step), and publish()
// copies the weights back. From another device gradients are copied beside the program (model/device_copies.h): they are
// reported in the order of backward, each once it has arrived, the last of them in settle_gradients(). Tried on a
// device made for the tests, not on a GPU.
//
// A gradient of another parameter that was freed or replaced (zero_grad(true), torch 2's default; p.mutable_grad() = …)
// is copied into its place, at the cost of that copy, and the view is attached again. Parameters that share one tensor
// share one slot. Training thread only, and the threads in which autograd runs meanwhile (for the CPU it is the same).
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
// Reads a dictionary of tensors that this or Python's torch.save wrote; DataError, with the file, if it is not one.
NamedTensors read_state_dict(const std::string& path);

class TorchModel {
 public:
  // `stage`: stage all parameters.
  explicit TorchModel(const ModuleTensors& module, bool stage = false);
  explicit TorchModel(const torch::nn::Module& module) : TorchModel(ModuleTensors::of(module)) {}
  ~TorchModel();
  TorchModel(const TorchModel&) = delete;
  TorchModel& operator=(const TorchModel&) = delete;

  FlatModel& flat() { return *flat_; }
  bool stages() const { return stages_; }  // is at least one parameter staged?
  void publish();                          // copies the flat weights to staged parameters

  // `on_ready(slot)` is called during backward, or in settle_gradients(), once per slot and backward pass, but not for
  // passes while held() is true. What it throws ends the calls, not backward: require_backward() throws it until
  // unseal().
  void on_gradient(std::function<void(std::size_t)> on_ready);
  bool& held();
  // Reports what is still under way, and throws the error that on_ready or note_failure() left, if there is one. Ranks
  // must have reported the same gradients before they communicate between backward and step.
  void require_backward();
  void note_failure(std::exception_ptr failure);
  // Calls require_backward(), and brings gradients that are elsewhere into the flat buffer; a freed one counts as zero.
  // Throws ConfigError naming a parameter whose gradient has changed since seal().
  void settle_gradients();
  // Zeroes what backward has added since the last call or unseal().
  void zero_gradients();

  // The gradients of slots [first, end) are in use: until unseal(), settle_gradients() notices torch operations that
  // change them. Changes through FlatModel::grads(), which are ours, do not count.
  void seal(std::size_t first, std::size_t end);
  void unseal();

  c10::IntArrayRef shape(std::size_t slot) const;

  // Tensors that are not trained: buffers (BatchNorm's running statistics) and frozen parameters.
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
  std::vector<std::int64_t> versions_;  // by slot: the gradient's version when it was sealed; -1: not sealed
};

}  // namespace slipstream
