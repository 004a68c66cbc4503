// SPDX-License-Identifier: Apache-2.0
//
// EDGE 1: one of the few sources that speak torch (the others: docs/architecture.md).
#include "model/torch_model.h"

#include <slipstream/base/error.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <iterator>
#include <mutex>
#include <unordered_set>

#include "base/vec.h"
#include "checkpoint/atomic_file.h"
#include "model/device_copies.h"

namespace slipstream {

namespace {

std::int64_t version_of(const torch::Tensor& parameter) {
  const auto& grad = parameter.grad();
  return grad.defined() ? static_cast<std::int64_t>(grad._version()) : 0;
}

}  // namespace

// What the hooks share. Autograd's nodes live as long as the parameters, so they refer to this, not to the TorchModel.
struct TorchModel::Hooks {
  std::function<void(std::size_t)> on_ready;
  std::vector<torch::Tensor> parameters;  // by slot
  std::vector<torch::Tensor> views;       // the flat gradients, by slot
  std::vector<torch::Tensor> masters;     // the flat weights, by slot; undefined: the parameter itself is there
  bool staged(std::size_t i) const { return masters[i].defined(); }
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()));  // another type since 2.14
  std::vector<Accumulator> accumulators;  // autograd holds them only weakly
  bool held = false;                      // backward passes are not reported
  bool touched = false;                   // there was a backward pass since the last step
  std::exception_ptr failure;             // the first error in a hook, until settle_gradients() can throw it
  std::vector<std::int64_t> fetched;      // by slot: the version of a staged gradient that was copied last

  struct Ready {
    std::size_t slot;
    Arrival arrival;
  };
  std::deque<Ready> unreported;  // complete gradients, in the order of backward; clear() waits for them
  std::mutex mutex;              // autograd has a thread for each device; guards all of this during backward

  // Copies the gradient of a staged parameter, which stays where it is.
  Arrival fetch(std::size_t i) {
    const auto& grad = parameters[i].grad();
    fetched[i] = version_of(parameters[i]);
    if (grad.defined()) return copy_beside(views[i], grad);
    views[i].zero_();
    return {};
  }

  // Calls on_ready for gradients that have arrived; those after one that has not wait with it, as the order counts.
  // torch makes a plain RuntimeError of what passes through its autograd to Python: an error is kept.
  void report(bool wait) {
    try {
      while (!unreported.empty()) {
        const std::size_t slot = unreported.front().slot;
        if (wait) unreported.front().arrival.wait();
        if (!unreported.front().arrival.passed()) return;
        unreported.pop_front();
        if (on_ready) on_ready(slot);
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }
};

namespace {

// A tensor that shares its version counter with its data() and detach(). With a plain tensor's data() the count starts
// anew, so that changes by torch's own clip_grad_norm_ would go unnoticed.
struct CountedTensor final : c10::TensorImpl {
  using c10::TensorImpl::TensorImpl;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(const c10::VariableVersion&,
                                                              bool may_change) const override {
    return c10::TensorImpl::shallow_copy_and_detach(version_counter(), may_change);
  }
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(c10::VariableVersion&&, bool may_change) const override {
    return c10::TensorImpl::shallow_copy_and_detach(version_counter(), may_change);
  }
};

torch::Tensor counted(const torch::Tensor& view) {
  auto tensor = at::detail::make_tensor<CountedTensor>(c10::Storage(view.storage()), view.key_set(), view.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(view.sizes());
  return tensor;
}

bool in_place(const torch::Tensor& parameter, const torch::Tensor& view) {
  const auto& grad = parameter.grad();
  return grad.defined() && grad.data_ptr() == view.data_ptr();
}

// After zero_grad(true), the default since torch 2, backward makes a new gradient tensor: copies it into the flat
// buffer.
void bring_home(torch::Tensor& parameter, torch::Tensor& view) {
  if (in_place(parameter, view)) return;
  torch::NoGradGuard no_grad;
  torch::Tensor& grad = parameter.mutable_grad();
  if (grad.defined()) {
    view.copy_(grad);
  } else {
    view.zero_();
  }
  grad = view;
}

template <typename F>
struct PostHook final : torch::autograd::FunctionPostHook {
  explicit PostHook(F f) : call(std::move(f)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    call();
    return outputs;
  }
  F call;
};

template <typename F>
std::unique_ptr<torch::autograd::FunctionPostHook> make_hook(F f) {
  return std::make_unique<PostHook<F>>(std::move(f));
}

}  // namespace

TorchModel::TorchModel(const ModuleTensors& module, bool stage) : module_(module), hooks_(std::make_shared<Hooks>()) {
  std::vector<Parameter> sizes;
  std::unordered_set<const void*> seen;
  for (const auto& [name, p] : module.parameters) {
    if (!seen.insert(p.unsafeGetTensorImpl()).second) continue;
    if (!p.is_floating_point() || p.scalar_type() == torch::kDouble) {
      fail<ConfigError>("parameter '{}' is {}; Slipstream trains float32, bfloat16 and float16", name,
                        c10::toString(p.scalar_type()));
    }
    if (p.is_meta()) {
      fail<ConfigError>("parameter '{}' has no data: it is on the device meta; give the module memory first", name);
    }
    if (!p.requires_grad()) {
      others_.push_back(p);
      other_names_.push_back(name);
      continue;
    }
    hooks_->parameters.push_back(p);
    const bool matrix = p.dim() > 1 && p.numel() > 0;
    sizes.push_back({name, static_cast<std::size_t>(p.numel()), matrix ? static_cast<std::size_t>(p.size(0)) : 1});
  }
  for (const auto& [name, buffer] : module.buffers) {
    others_.push_back(buffer);
    other_names_.push_back(name);
  }
  if (hooks_->parameters.empty()) fail<ConfigError>("the model has no parameter that requires a gradient");

  const bool devices = std::any_of(hooks_->parameters.begin(), hooks_->parameters.end(),
                                   [](const torch::Tensor& p) { return !p.device().is_cpu(); });
  hooks_->fetched.assign(sizes.size(), 0);
  flat_ = devices ? std::make_unique<FlatModel>(sizes, pinned_memory) : std::make_unique<FlatModel>(sizes);
  unseal();
  for (std::size_t i = 0; i < hooks_->parameters.size(); ++i) {
    torch::Tensor& p = hooks_->parameters[i];
    const Slot& slot = flat_->slots()[i];
    auto weights = torch::from_blob(flat_->weights().data() + slot.offset, p.sizes());
    auto grads = counted(torch::from_blob(flat_->grads().data() + slot.offset, p.sizes()));
    weights.copy_(p.detach());
    const bool staged = stage || !p.device().is_cpu() || p.scalar_type() != torch::kFloat;
    stages_ = stages_ || staged;
    if (staged) {
      p.mutable_grad() = torch::Tensor();
    } else {
      p.set_data(weights);
      p.mutable_grad() = grads;
    }
    hooks_->views.push_back(grads);
    hooks_->masters.push_back(staged ? weights : torch::Tensor());
    hooks_->accumulators.push_back(torch::autograd::impl::grad_accumulator(p));
    hooks_->accumulators.back()->add_post_hook(make_hook([hooks = std::weak_ptr(hooks_), i] {
      const auto alive = hooks.lock();
      if (!alive) return;
      const std::lock_guard lock(alive->mutex);
      alive->touched = true;
      if (alive->failure) return;
      if (!alive->staged(i)) bring_home(alive->parameters[i], alive->views[i]);
      if (alive->held) return;
      alive->unreported.push_back({i, alive->staged(i) ? alive->fetch(i) : Arrival()});
      alive->report(/*wait=*/false);
    }));
  }
}

// The module outlives us: gives it memory of its own again.
TorchModel::~TorchModel() {
  hooks_->unreported.clear();
  for (std::size_t i = 0; i < hooks_->parameters.size(); ++i) {
    torch::Tensor& p = hooks_->parameters[i];
    p.mutable_grad() = torch::Tensor();
    if (!hooks_->staged(i)) p.set_data(p.detach().clone());
  }
}

void TorchModel::publish() {
  std::vector<Arrival> copies;
  for (std::size_t i = 0; i < hooks_->parameters.size(); ++i) {
    if (hooks_->staged(i)) copies.push_back(copy_beside(hooks_->parameters[i], hooks_->masters[i]));
  }
  for (const Arrival& copy : copies) copy.wait();
}

void TorchModel::on_gradient(std::function<void(std::size_t)> on_ready) { hooks_->on_ready = std::move(on_ready); }

bool& TorchModel::held() { return hooks_->held; }

void TorchModel::require_backward() {
  if (!hooks_->failure) hooks_->report(/*wait=*/true);
  if (hooks_->failure) std::rethrow_exception(hooks_->failure);
}

void TorchModel::note_failure(std::exception_ptr failure) { hooks_->failure = std::move(failure); }

void TorchModel::settle_gradients() {
  require_backward();
  std::vector<Arrival> copies;
  for (std::size_t i = 0; i < hooks_->parameters.size(); ++i) {
    torch::Tensor &p = hooks_->parameters[i], &view = hooks_->views[i];
    if (versions_[i] < 0) {
      hooks_->staged(i) ? copies.push_back(hooks_->fetch(i)) : bring_home(p, view);
      continue;
    }
    if (hooks_->staged(i) ? version_of(p) == versions_[i] : in_place(p, view) && versions_[i] == view._version())
      continue;
    fail<ConfigError>(
        "the gradient of parameter '{}' was changed between backward() and step(), when it was under way to the other "
        "ranks already; to clip gradients set clip_norm in the optimizer's options (it clips their mean), or keep "
        "Session::hold() alive during backward(), in Python `with opt.no_sync():`: then gradients leave in step() and "
        "may be changed before",
        flat_->slots()[i].name);
  }
  for (const Arrival& copy : copies) copy.wait();
}

void TorchModel::zero_gradients() {
  if (!std::exchange(hooks_->touched, false)) return;
  hooks_->unreported.clear();
  torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < hooks_->parameters.size(); ++i) {
    hooks_->views[i].zero_();
    hooks_->parameters[i].mutable_grad() = hooks_->staged(i) ? torch::Tensor() : hooks_->views[i];
  }
}

void TorchModel::seal(std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) {
    if (hooks_->staged(i)) {
      versions_[i] = hooks_->fetched[i];
      continue;
    }
    torch::Tensor& grad = hooks_->parameters[i].mutable_grad();
    if (!grad.is_same(hooks_->views[i])) grad = hooks_->views[i];  // zero_grad(false) puts another tensor in its place
    versions_[i] = hooks_->views[i]._version();
  }
}

void TorchModel::unseal() {
  hooks_->unreported.clear();
  versions_.assign(hooks_->parameters.size(), -1);
  hooks_->touched = false;
  hooks_->failure = nullptr;
  for (std::size_t i = 0; i < hooks_->masters.size(); ++i) {
    if (hooks_->staged(i)) hooks_->parameters[i].mutable_grad() = torch::Tensor();  // used up, like the flat ones
  }
}

c10::IntArrayRef TorchModel::shape(std::size_t slot) const { return hooks_->parameters[slot].sizes(); }

// The pickle of a plain dictionary. torch::pickle_save would also record its types, by a call that torch.load refuses
// by default since 2.6 (weights_only).
void write_state_dict(const std::string& path, const NamedTensors& tensors) {
  c10::Dict<std::string, torch::Tensor> dict;
  for (const auto& [name, tensor] : tensors) dict.insert(name, tensor.detach().cpu().clone());
  std::string pickle;
  torch::jit::Pickler pickler([&pickle](const char* data, std::size_t bytes) { pickle.append(data, bytes); }, nullptr,
                              nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();

  std::string file;
  caffe2::serialize::PyTorchStreamWriter archive([&file](const void* data, std::size_t bytes) {
    file.append(static_cast<const char*>(data), bytes);
    return bytes;
  });
  archive.writeRecord("data.pkl", pickle.data(), pickle.size());
  const auto& storages = pickler.tensorData();
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const auto storage = torch::jit::getWriteableTensorData(storages[i]);
    archive.writeRecord("data/" + std::to_string(i), storage.data(), storage.sizeInBytes());
  }
  archive.writeEndOfFile();
  write_atomically(path, std::as_bytes(std::span(file)));
}

NamedTensors read_state_dict(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) fail<DataError>("{}: cannot be read; check the name and its permissions", path);
  NamedTensors tensors;
  try {
    for (const auto& entry : torch::pickle_load(bytes).toGenericDict()) {
      tensors.emplace_back(entry.key().toStringRef(), entry.value().toTensor());
    }
  } catch (const std::exception&) {
    fail<DataError>(
        "{}: at byte 0: this is not a dictionary of tensors as torch.save and model.pt have it, or it is damaged",
        path);
  }
  return tensors;
}

void TorchModel::save_state_dict(const std::string& path) const {
  NamedTensors tensors = module_.parameters;
  tensors.insert(tensors.end(), module_.buffers.begin(), module_.buffers.end());
  write_state_dict(path, tensors);
}

}  // namespace slipstream
