// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "model/bucketizer.h"
#include "model/torch_model.h"
#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;

// Three layers and all the unusual: a tied weight, a branch that may be left out, a frozen parameter, buffers.
struct Odd : torch::nn::Module {
  Odd() {
    first = register_module("first", torch::nn::Linear(4, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    spare = register_module("spare", torch::nn::Linear(4, 2));
    last = register_module("last", torch::nn::Linear(4, 4));
    tied = register_parameter("tied", first->weight);
    frozen = register_parameter("frozen", torch::full({4}, 0.5), false);
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(last(norm(first(x)).relu()) * frozen, tied); }

  torch::nn::Linear first{nullptr}, spare{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor tied, frozen;
};

torch::Tensor input() { return torch::linspace(-1, 1, 24).view({6, 4}); }
torch::Tensor loss_of(Odd& net) { return net.forward(input()).square().sum(); }

const float* place(const torch::Tensor& t) { return t.data_ptr<float>(); }

std::map<std::string, torch::Tensor> copy_of(const torch::nn::Module& module) {
  std::map<std::string, torch::Tensor> copies;
  for (const auto& item : module.named_parameters()) copies[item.key()] = item.value().detach().clone();
  for (const auto& item : module.named_buffers()) copies[item.key()] = item.value().detach().clone();
  return copies;
}

std::vector<std::string> slot_names(TorchModel& model) {
  std::vector<std::string> names;
  for (const Slot& slot : model.flat().slots()) names.push_back(slot.name);
  return names;
}

TEST(TorchModel, WeightsKeepTheirValuesAndBecomeViewsOfTheFlatBuffer) {
  Odd net;
  const auto before = copy_of(net);
  TorchModel model(net);
  const auto parameters = net.named_parameters();
  for (const Slot& slot : model.flat().slots()) {
    const torch::Tensor& p = parameters[slot.name];
    EXPECT_TRUE(torch::equal(p, before.at(slot.name))) << slot.name;
    EXPECT_EQ(place(p), model.flat().weights().data() + slot.offset) << slot.name;
    EXPECT_EQ(static_cast<std::size_t>(p.numel()), slot.count) << slot.name;
    EXPECT_TRUE(p.requires_grad() && p.is_leaf()) << slot.name;
  }
  model.flat().weights()[0] = 42;  // what is written there is what the module computes with
  EXPECT_EQ(net.first->weight[0][0].item<float>(), 42);
}

TEST(TorchModel, GradientsLandInTheFlatBufferAndAreThoseOfABareModule) {
  torch::manual_seed(1);
  Odd bare;
  torch::manual_seed(1);
  Odd net;
  TorchModel model(net);
  loss_of(bare).backward();
  loss_of(net).backward();
  loss_of(net).backward();  // accumulates in place
  const auto wanted = bare.named_parameters();
  const auto parameters = net.named_parameters();
  for (const Slot& slot : model.flat().slots()) {
    const torch::Tensor& grad = parameters[slot.name].grad();
    EXPECT_EQ(place(grad), model.flat().grads().data() + slot.offset) << slot.name;
    const torch::Tensor& once = wanted[slot.name].grad();
    const torch::Tensor want = once.defined() ? 2 * once : torch::zeros_like(grad);
    EXPECT_TRUE(torch::allclose(grad, want, 1e-5, 1e-5)) << slot.name;
  }
  EXPECT_NO_THROW(model.settle_gradients());
}

TEST(TorchModel, HooksFireOncePerSlotAndBackwardLastLayerFirst) {
  torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
  TorchModel model(*net);
  std::vector<std::size_t> order;
  model.on_gradient([&](std::size_t slot) { order.push_back(slot); });
  for (int pass = 0; pass < 2; ++pass) {
    order.clear();
    net->forward(torch::ones({2, 3})).sum().backward();
    ASSERT_EQ(order.size(), 6U);
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_EQ(order[i] / 2, 2 - i / 2) << "slots are two a layer, in order of layers";
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5}));
  }
}

TEST(TorchModel, AGradientIsCompleteWhenItsHookFires) {
  Odd net;
  TorchModel model(net);
  std::map<std::size_t, torch::Tensor> seen;
  const auto grad_of = [&](std::size_t i) {
    const Slot& slot = model.flat().slots()[i];
    return torch::from_blob(model.flat().grads().data() + slot.offset, {static_cast<std::int64_t>(slot.count)});
  };
  model.on_gradient([&](std::size_t slot) { seen[slot] = grad_of(slot).clone(); });
  loss_of(net).backward();
  EXPECT_GE(seen.size(), 4U);
  for (const auto& [slot, grad] : seen) EXPECT_TRUE(torch::equal(grad, grad_of(slot))) << "slot " << slot;
}

TEST(TorchModel, ATiedParameterHasOneSlotAndReportsOnce) {
  Odd net;
  TorchModel model(net);
  const auto names = slot_names(model);
  EXPECT_EQ(std::count(names.begin(), names.end(), "first.weight") + std::count(names.begin(), names.end(), "tied"), 1);
  EXPECT_EQ(place(net.tied), place(net.first->weight));
  std::map<std::string, int> reports;
  model.on_gradient([&](std::size_t slot) { ++reports[names[slot]]; });
  loss_of(net).backward();
  EXPECT_EQ(reports["tied"] + reports["first.weight"], 1);
}

TEST(TorchModel, UnusedParametersCountAsReadyWithZeros) {
  Odd net;
  TorchModel model(net);
  std::vector<int> released;
  Bucketizer bucketizer(model.flat(), plan_buckets(model.flat(), BucketRule::per_slot()),
                        [&](const Bucket& bucket) { released.push_back(bucket.index); });
  std::vector<std::string> reported;
  model.on_gradient([&](std::size_t slot) {
    reported.push_back(model.flat().slots()[slot].name);
    bucketizer.slot_ready(slot);
  });
  loss_of(net).backward();
  EXPECT_EQ(std::count(reported.begin(), reported.end(), "spare.weight"), 0);
  EXPECT_LT(released.size(), bucketizer.plan().size());
  bucketizer.finish_backward();
  EXPECT_EQ(released.size(), bucketizer.plan().size());
  EXPECT_TRUE(std::is_sorted(released.begin(), released.end()));
  EXPECT_TRUE(torch::equal(net.spare->weight.grad(), torch::zeros({2, 4})));
}

TEST(TorchModel, FrozenParametersAreLeftAlone) {
  Odd net;
  const float* before = place(net.frozen);
  TorchModel model(net);
  const auto names = slot_names(model);
  EXPECT_EQ(std::count(names.begin(), names.end(), "frozen"), 0);
  EXPECT_EQ(place(net.frozen), before);
  loss_of(net).backward();
  EXPECT_FALSE(net.frozen.grad().defined());
}

TEST(TorchModel, AFreedOrReallocatedGradientComesHome) {
  Odd net;
  TorchModel model(net);
  const float* home = place(net.last->bias.grad());
  net.last->bias.grad().fill_(9);
  net.last->bias.mutable_grad() = torch::Tensor();
  model.settle_gradients();
  EXPECT_EQ(place(net.last->bias.grad()), home);
  EXPECT_TRUE(torch::equal(net.last->bias.grad(), torch::zeros({4}))) << "freed means zero";
  net.last->bias.mutable_grad() = torch::full({4}, 3.0F);
  model.settle_gradients();
  EXPECT_EQ(place(net.last->bias.grad()), home);
  EXPECT_TRUE(torch::equal(net.last->bias.grad(), torch::full({4}, 3.0F)));
}

TEST(TorchModel, ZeroGradToNoneBeforeBackwardLeavesTheGradientsOfABareModule) {
  torch::manual_seed(1);
  Odd bare;
  torch::manual_seed(1);
  Odd net;
  TorchModel model(net);
  std::size_t reports = 0;
  model.on_gradient([&](std::size_t i) {
    const Slot& slot = model.flat().slots()[i];
    EXPECT_EQ(place(net.named_parameters()[slot.name].grad()), model.flat().grads().data() + slot.offset);
    ++reports;
  });
  loss_of(net).backward();
  net.zero_grad(true);
  loss_of(net).backward();
  EXPECT_GE(reports, 8U);
  loss_of(bare).backward();
  model.settle_gradients();
  for (const auto& item : bare.named_parameters()) {
    const torch::Tensor& grad = net.named_parameters()[item.key()].grad();
    if (!item.value().grad().defined()) continue;
    EXPECT_TRUE(torch::allclose(grad, item.value().grad(), 1e-5, 1e-5)) << item.key();
  }
}

TEST(TorchModel, ASealedGradientThatIsFreedIsAnErrorThatNamesTheParameter) {
  Odd net;
  TorchModel model(net);
  loss_of(net).backward();
  model.seal(0, model.flat().slots().size());
  EXPECT_NO_THROW(model.settle_gradients());
  net.zero_grad(true);
  expect_error<ConfigError>([&] { model.settle_gradients(); }, {"gradient of parameter '", "changed"});
}

TEST(TorchModel, WhatCannotBeTrainedIsAnErrorThatNamesTheParameter) {
  torch::nn::Linear wide(2, 2);
  wide->to(torch::kDouble);
  expect_error<ConfigError>([&] { TorchModel model(*wide); }, {"'weight'", "Double", "float32"});
  torch::nn::Module elsewhere;
  elsewhere.register_parameter("ghost", torch::empty({2}, torch::device(torch::kMeta)));
  expect_error<ConfigError>([&] { TorchModel model(elsewhere); }, {"'ghost'", "no data", "meta"});
  torch::nn::Module nothing;
  expect_error<ConfigError>([&] { TorchModel model(nothing); }, {"no parameter"});
}

// 0.001 is less than half of the last place of a bfloat16 near 1: without a master it would never move.
TEST(TorchModel, AMasterKeepsStepsThatAreTooSmallForItsParameter) {
  torch::nn::Module net;
  auto p = net.register_parameter("p", torch::ones({2}, torch::kBFloat16));
  TorchModel model(net);
  ASSERT_TRUE(model.stages());
  const auto step = [&] {
    for (float& weight : model.flat().weights()) weight -= 0.001F;
    model.publish();
    return p[0].item<float>();
  };
  EXPECT_EQ(step(), 1.0F);
  step();
  EXPECT_EQ(step(), 0.99609375F) << "0.997, rounded";
  EXPECT_EQ(p.scalar_type(), torch::kBFloat16);
}

TEST(TorchModel, TheDestructorGivesTheModuleItsOwnMemoryBack) {
  Odd net;
  int reports = 0;
  std::map<std::string, torch::Tensor> before;
  {
    TorchModel model(net);
    model.on_gradient([&](std::size_t) { ++reports; });
    model.flat().weights()[3] = 7;
    before = copy_of(net);
    loss_of(net).backward();
    EXPECT_GT(reports, 0);
  }
  reports = 0;
  for (const auto& item : net.named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), before.at(item.key()))) << item.key();
    EXPECT_FALSE(item.value().grad().defined()) << item.key();
  }
  loss_of(net).backward();
  EXPECT_EQ(reports, 0);
  EXPECT_GT(net.first->weight.grad().abs().sum().item<float>(), 0);
  EXPECT_EQ(place(net.tied), place(net.first->weight));

  TorchModel again(net);  // and may be taken over once more
  again.on_gradient([&](std::size_t) { ++reports; });
  loss_of(net).backward();
  EXPECT_GT(reports, 0);
}

TEST(TorchModel, OthersAreTheBuffersAndTheFrozenParameters) {
  Odd net;
  TorchModel model(net);
  std::vector<const void*> others, want;
  for (const torch::Tensor& t : model.others()) others.push_back(t.data_ptr());
  for (const torch::Tensor& t :
       {net.frozen, net.norm->running_mean, net.norm->running_var, net.norm->num_batches_tracked}) {
    want.push_back(t.data_ptr());
  }
  std::sort(others.begin(), others.end());
  std::sort(want.begin(), want.end());
  EXPECT_EQ(others, want);
}

TEST(TorchModel, TheSavedStateDictIsReadBackByPickleLoad) {
  const test::TempDir dir;
  const std::string path = (dir.path() / "model.pt").string();
  Odd net;
  TorchModel model(net);
  model.save_state_dict(path);
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  std::map<std::string, torch::Tensor> loaded;
  for (const auto& entry : torch::pickle_load(bytes).toGenericDict()) {
    loaded[entry.key().toStringRef()] = entry.value().toTensor();
  }
  const auto want = copy_of(net);
  ASSERT_EQ(loaded.size(), want.size());
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(loaded.count(name)) << name;
    EXPECT_TRUE(torch::equal(loaded[name], tensor)) << name;
  }
}

TEST(TorchModel, AStateDictThatCannotBeWrittenIsAnErrorThatNamesTheFile) {
  const test::TempDir dir;
  const std::string path = (dir.path() / "missing" / "model.pt").string();
  Odd net;
  TorchModel model(net);
  expect_error<ConfigError>([&] { model.save_state_dict(path); }, {path, "No such file"});
}

}  // namespace
}  // namespace slipstream
