// SPDX-License-Identifier: Apache-2.0
//
// EDGE 1: one of the few sources that speak torch (the others: docs/architecture.md).
#include "model/torch_model.h"

#include <slipstream/base/error.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <unordered_set>

#include "base/vec.h"
#include "checkpoint/atomic_file.h"

namespace slipstream {

// What the hooks share. Autograd's nodes live as long as the parameters, so they hold this and not the TorchModel.
struct TorchModel::Hooks {
  std::function<void(std::size_t)> on_ready;
  std::vector<torch::Tensor> parameters;                             // by slot
  std::vector<torch::Tensor> views;                                  // the gradients' places, by slot
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators;  // autograd holds them only weakly
};

namespace {

// A tensor whose data() and detach() count their changes in its version, too. Those of a plain tensor's data() begin
// anew: torch's own clip_grad_norm_ would go unseen.
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

void require_in_place(const torch::Tensor& parameter, const torch::Tensor& view, const std::string& name) {
  const auto& grad = parameter.grad();
  if (grad.defined() && grad.data_ptr() == view.data_ptr()) return;
  fail<ConfigError>(
      "the gradient of parameter '{}' was {}; Slipstream keeps gradients in one flat buffer and zeroes them "
      "itself: leave out zero_grad, or call it with set_to_none = false, and never assign to .grad",
      name, grad.defined() ? "re-allocated" : "freed");
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

TorchModel::TorchModel(torch::nn::Module& module) : module_(module), hooks_(std::make_shared<Hooks>()) {
  std::vector<Parameter> sizes;
  std::unordered_set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    const torch::Tensor& p = item.value();
    if (!seen.insert(p.unsafeGetTensorImpl()).second) continue;
    if (!p.device().is_cpu() || p.scalar_type() != torch::kFloat) {
      fail<ConfigError>("parameter '{}' is {} on {}; Slipstream trains float32 parameters on the CPU", item.key(),
                        c10::toString(p.scalar_type()), p.device().str());
    }
    if (!p.requires_grad()) {
      others_.push_back(p);
      other_names_.push_back(item.key());
      continue;
    }
    hooks_->parameters.push_back(p);
    const bool matrix = p.dim() > 1 && p.numel() > 0;
    sizes.push_back(
        {item.key(), static_cast<std::size_t>(p.numel()), matrix ? static_cast<std::size_t>(p.size(0)) : 1});
  }
  for (const auto& item : module.named_buffers()) {
    others_.push_back(item.value());
    other_names_.push_back(item.key());
  }
  if (hooks_->parameters.empty()) fail<ConfigError>("the model has no parameter that requires a gradient");

  flat_ = std::make_unique<FlatModel>(sizes);
  unseal();
  for (std::size_t i = 0; i < hooks_->parameters.size(); ++i) {
    torch::Tensor& p = hooks_->parameters[i];
    const Slot& slot = flat_->slots()[i];
    auto weights = torch::from_blob(flat_->weights().data() + slot.offset, p.sizes());
    auto grads = counted(torch::from_blob(flat_->grads().data() + slot.offset, p.sizes()));
    weights.copy_(p.detach());
    p.set_data(weights);
    p.mutable_grad() = grads;
    hooks_->views.push_back(grads);
    hooks_->accumulators.push_back(torch::autograd::impl::grad_accumulator(p));
    hooks_->accumulators.back()->add_post_hook(make_hook([hooks = std::weak_ptr(hooks_), i, name = slot.name] {
      const auto alive = hooks.lock();
      if (!alive || !alive->on_ready) return;
      require_in_place(alive->parameters[i], alive->views[i], name);
      alive->on_ready(i);
    }));
  }
}

// The module keeps working after us: it gets memory of its own back.
TorchModel::~TorchModel() {
  for (torch::Tensor& p : hooks_->parameters) {
    p.mutable_grad() = torch::Tensor();
    p.set_data(p.detach().clone());
  }
}

void TorchModel::on_gradient(std::function<void(std::size_t)> on_ready) { hooks_->on_ready = std::move(on_ready); }

void TorchModel::check_gradients() const {
  for (std::size_t i = 0; i < hooks_->parameters.size(); ++i) {
    const std::string& name = flat_->slots()[i].name;
    require_in_place(hooks_->parameters[i], hooks_->views[i], name);
    if (versions_[i] < 0 || versions_[i] == hooks_->views[i]._version()) continue;
    fail<ConfigError>(
        "the gradient of parameter '{}' was changed between backward() and step(), when it was under way to the other "
        "ranks already; to clip gradients set clip_norm in the optimizer's options (it clips their mean), or keep "
        "Session::hold() alive during backward(): then gradients leave in step() and may be changed before",
        name);
  }
}

void TorchModel::seal(std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) {
    torch::Tensor& grad = hooks_->parameters[i].mutable_grad();
    if (!grad.is_same(hooks_->views[i])) grad = hooks_->views[i];  // zero_grad(false) puts another tensor in its place
    versions_[i] = hooks_->views[i]._version();
  }
}

void TorchModel::unseal() { versions_.assign(hooks_->parameters.size(), -1); }

c10::IntArrayRef TorchModel::shape(std::size_t slot) const { return hooks_->parameters[slot].sizes(); }

void write_state_dict(const std::string& path, const NamedTensors& tensors) {
  c10::Dict<std::string, torch::Tensor> dict;
  for (const auto& [name, tensor] : tensors) dict.insert(name, tensor.detach().clone());
  const std::vector<char> bytes = torch::pickle_save(c10::IValue(dict));
  write_atomically(path, std::as_bytes(std::span(bytes)));
}

void TorchModel::save_state_dict(const std::string& path) const {
  NamedTensors tensors;
  for (const auto& item : module_.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module_.named_buffers()) tensors.emplace_back(item.key(), item.value());
  write_state_dict(path, tensors);
}

}  // namespace slipstream
