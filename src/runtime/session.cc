// SPDX-License-Identifier: Apache-2.0
#include <slipstream/base/error.h>
#include <slipstream/base/version.h>
#include <slipstream/runtime/session.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/hash.h"
#include "engine/agreement.h"
#include "engine/engine.h"
#include "engine/groups.h"
#include "engine/pace.h"
#include "fabric/c10d_sums.h"
#include "model/torch_model.h"
#include "runtime/launch.h"

namespace slipstream {
namespace {

std::atomic<bool> stop_flag{false};  // set by signal handlers, cleared by the engine that was stopped

// Makes the tensors equal on all ranks: rank 0's values or, with `average` and floating point, the mean.
void share(Fabric& net, std::vector<torch::Tensor>& tensors, bool average) {
  torch::NoGradGuard no_grad;
  for (torch::Tensor& t : tensors) {
    const bool mean = average && t.is_floating_point();
    auto values = t.to(torch::kDouble).contiguous().view({-1});
    // A sum with zeros from all but rank 0 is a broadcast. Each double goes as two floats, which is exact for what
    // buffers hold: fp32 statistics, counters below 2^48.
    auto high = values.to(torch::kFloat);
    auto low = (values - high.to(torch::kDouble)).to(torch::kFloat);
    auto both = torch::cat({high, low}).contiguous();
    if (!mean && net.rank() != 0) both.zero_();
    net.sum({both.data_ptr<float>(), static_cast<std::size_t>(both.numel())}).wait();
    auto halves = both.to(torch::kDouble).view({2, -1});
    auto result = halves[0] + halves[1];
    if (mean) result = result / net.size();
    t.copy_(result.view(t.sizes()));
  }
}

// The strategy, once all ranks are known to have been given the same: options, parameters and this library's version.
std::unique_ptr<Strategy> agreed_strategy(Fabric& world, TorchModel& model, const SessionOptions& options) {
  const auto configured = options.registry.configure(options.strategy, options.set);
  Facts facts{{"version", version()}, {"strategy", options.strategy}};
  add_options(facts, configured.options);
  OptimizerOptions optimizer = options.optimizer;
  OptionSet described("optimizer");
  optimizer.describe(described);
  add_options(facts, described);
  add_groups(facts, optimizer.groups);
  if (options.lr) facts.push_back({"lr at step 0", fmt::format("{}", options.lr(0))});
  const auto& slots = model.flat().slots();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    facts.push_back({"parameter " + slots[i].name, fmt::format("[{}]", fmt::join(model.shape(i), ", "))});
  }
  for (const torch::Tensor& other : model.others()) {
    facts.push_back({"buffer or frozen parameter", fmt::format("[{}]", fmt::join(other.sizes(), ", "))});
  }
  require_same(world, facts, "start all of them with the same options and the same model");
  return configured.make();
}

}  // namespace

struct Session::State {
  Fabric& world;
  TorchModel model;
  Engine engine;
  std::optional<Pace> pace;  // empty: alone, or simulated
  bool held = false;

  State(Fabric& fabric, torch::nn::Module& module, const SessionOptions& options)
      : world(fabric),
        model(module),
        engine(fabric, model.flat(), agreed_strategy(fabric, model, options),
               {.optimizer = options.optimizer, .lr = options.lr, .stop = &stop_flag}) {
    if (fabric.size() > 1 && fabric.can_listen()) pace.emplace(fabric);
  }

  // Step t has data of this rank: from here on it cannot be taken back.
  void begin_step() {
    if (pace) pace->begins(engine.t());
  }
};

Session::Session(Fabric& world, torch::nn::Module& module, const SessionOptions& options)
    : state_(std::make_unique<State>(world, module, options)) {
  State& s = *state_;
  share(world, s.model.others(), false);
  s.model.on_gradient([&s](std::size_t slot) {
    if (!s.held) s.engine.slot_ready(slot);
  });
  s.engine.on_taken = [&s](const Bucket& bucket) {
    s.begin_step();
    s.model.seal(bucket.first_slot, bucket.end_slot);
  };
  s.engine.on_record = [this](const StepRecord& record, const Traffic& traffic) {
    state_->model.unseal();
    if (on_record) on_record(record, traffic);
  };
}

Session::~Session() = default;

const StepRecord& Session::step(double loss) {
  state_->model.check_gradients();
  state_->begin_step();
  return state_->engine.step(loss);
}

Session::Hold Session::hold() { return Hold(state_->held); }

void Session::set_lr_factor(std::size_t group, double factor) { state_->engine.set_lr_factor(group, factor); }

void Session::join() {
  State& s = *state_;
  // After a backward pass whose gradients left without a step() the ranks stand as they are: all must have done the same.
  if (!s.pace || s.pace->begun(s.engine.t())) return;
  while (s.pace->someone_goes_on(s.engine.t())) s.engine.step_without_data();
}

void Session::finish() {
  join();
  state_->engine.finish();
  average_buffers();
}

void Session::average_buffers() { share(state_->world, state_->model.others(), true); }
void Session::save(const std::string& path) const { state_->model.save_state_dict(path); }
std::uint64_t Session::weights_hash() { return hash_bytes(std::as_bytes(state_->model.flat().weights())); }

bool Session::agreement() {
  const std::uint64_t mine = weights_hash();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(state_->world.size()));
  state_->world.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))).wait();
  return std::all_of(all.begin(), all.end(), [mine](std::uint64_t theirs) { return theirs == mine; });
}

bool Session::stop_requested() noexcept { return stop_flag.load(std::memory_order_relaxed); }
void Session::request_stop() noexcept { stop_flag.store(true, std::memory_order_relaxed); }
FlatModel& Session::model() { return state_->model.flat(); }
std::int64_t Session::steps() const { return state_->engine.t(); }

std::unique_ptr<Fabric> join() {
  const Placement placement = place({}, process_environment());
  return join_fabric(placement.supervisor ? Rendezvous{} : placement.at);
}

}  // namespace slipstream
