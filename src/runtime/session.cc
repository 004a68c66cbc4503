// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <slipstream/base/error.h>
#include <slipstream/base/version.h>
#include <slipstream/runtime/session.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/hash.h"
#include "engine/agreement.h"
#include "engine/engine.h"
#include "engine/groups.h"
#include "engine/pace.h"
#include "fabric/c10d_sums.h"
#include "model/torch_model.h"
#include "runtime/checkpointer.h"
#include "runtime/convert.h"
#include "runtime/job_state.h"
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
    auto low = (values - high.to(torch::kDouble)).to(torch::kFloat).masked_fill(high.isinf(), 0);  // a mask's -inf
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
  facts.push_back({"optimizer's own step", options.own_step ? "yes" : "no"});
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

constexpr const char* kRandom = "random/torch";
constexpr const char* kSteps = "steps";

std::span<std::byte> bytes_of(const torch::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

// Torch's types and those of files.
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

// The module's tensors beside its parameters, which are the flat model's.
StateArchive archive_of(const std::string& name, const torch::Tensor& tensor) {
  const auto type = type_of(tensor);
  if (!type) fail<ConfigError>("'{}' is of a type that checkpoints do not have", name);
  const torch::Tensor packed = tensor.detach().contiguous();
  StateArchive one;
  one.add({{name, *type, tensor.sizes().vec(), bytes_of(packed)}});
  return one;
}

// The checkpoint's entry back into the tensor.
void restore_tensor(const StateArchive& state, const std::string& name, torch::Tensor& tensor) {
  torch::NoGradGuard no_grad;
  for (const TensorView& saved : state.tensors({})) {
    if (saved.name != name) continue;
    torch::Tensor packed = torch::empty(tensor.sizes(), tensor.options());
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

}  // namespace

void write_python_model(const std::string& path, const std::vector<TensorView>& tensors) {
  write_state_dict(path, as_torch(tensors));
}

struct Session::State {
  Fabric& world;
  TorchModel model;
  Engine engine;
  std::optional<Pace> pace;  // empty: alone, or simulated
  CheckpointOptions saving;
  CheckpointMeta job;                       // all but step and files
  std::optional<Checkpointer> checkpoints;  // empty: none on the way
  bool held = false;

  State(Fabric& fabric, const ModuleTensors& module, const SessionOptions& options)
      : world(fabric),
        model(module),
        engine(fabric, model.flat(), agreed_strategy(fabric, model, options),
               {.optimizer = options.optimizer, .lr = options.lr, .own_step = options.own_step, .stop = &stop_flag}),
        saving(options.checkpoint) {
    if (fabric.size() > 1 && fabric.can_listen()) pace.emplace(fabric);
    describe_job(options);
    open_checkpoints();
  }

  void describe_job(const SessionOptions& options) {
    const auto servers = world.servers();
    job.workers = world.size();
    job.servers = servers.first >= world.size() ? servers.count : 0;
    job.strategy = options.strategy;
    const auto configured = options.registry.configure(options.strategy, options.set);
    for (const Option& option : configured.options.all()) {
      if (option.changes == kChangesResult) job.options.emplace_back(option.name, option.get());
    }
    job.run = options.checkpoint.run_with;
    const auto& slots = model.flat().slots();
    for (std::size_t i = 0; i < slots.size(); ++i) {
      job.tensors.emplace_back(kModelPrefix + slots[i].name, model.shape(i).vec());
    }
    for (std::size_t i = 0; i < model.others().size(); ++i) {
      job.tensors.emplace_back(kBufferPrefix + model.other_names()[i], model.others()[i].sizes().vec());
    }
  }

  void open_checkpoints() {
    const auto every = CheckpointEvery::parse(saving.every);
    if (every.never()) return;
    checkpoints.emplace(world, Checkpointer::Options{saving.folder, every, saving.keep, saving.warn}, job, engine.t());
  }

  StateArchive snapshot() {
    StateArchive state;
    save_state(state, engine, model.flat());
    const auto add = [&state](const std::string& name, const torch::Tensor& tensor) {
      StateArchive one = archive_of(name, tensor);
      state.take(one, name);
    };
    for (std::size_t i = 0; i < model.others().size(); ++i) {
      add(kBufferPrefix + model.other_names()[i], model.others()[i]);
    }
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    add(kRandom, generator.get_state());
    return state;
  }

  void restore(const StateArchive& state, std::int64_t next_step) {
    restore_state(state, engine, model.flat(), next_step);
    for (std::size_t i = 0; i < model.others().size(); ++i) {
      restore_tensor(state, kBufferPrefix + model.other_names()[i], model.others()[i]);
    }
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    torch::Tensor random = generator.get_state();
    restore_tensor(state, kRandom, random);
    generator.set_state(random);
  }

  void stepped() {
    if (checkpoints) checkpoints->after_step(engine.t(), [this] { return snapshot(); });
  }

  // Step t has data of this rank: from here on it cannot be taken back.
  void begin_step() {
    if (pace) pace->begins(engine.t());
  }
};

Session::Session(Fabric& world, const torch::nn::Module& module, const SessionOptions& options)
    : Session(world, ModuleTensors::of(module), options) {}

Session::Session(Fabric& world, const ModuleTensors& module, const SessionOptions& options)
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
  state_->model.settle_gradients();
  state_->begin_step();
  const StepRecord& record = state_->engine.step(loss);
  state_->stepped();
  return record;
}

Session::Hold Session::hold() { return Hold(state_->held); }
void Session::zero_grad() { state_->model.zero_gradients(); }

void Session::set_lr_factor(std::size_t group, double factor) { state_->engine.set_lr_factor(group, factor); }

void Session::join() {
  State& s = *state_;
  // After a backward pass whose gradients left without a step() the ranks stand as they are: all must have done the same.
  if (!s.pace || s.pace->begun(s.engine.t())) return;
  while (s.pace->someone_goes_on(s.engine.t())) {
    s.engine.step_without_data();
    s.stepped();
  }
}

void Session::finish() {
  join();
  if (state_->checkpoints) state_->checkpoints->finish();
  state_->engine.finish();
  average_buffers();
}

void Session::save_checkpoint(const std::string& folder) {
  State& s = *state_;
  if (s.checkpoints) s.checkpoints->finish();
  std::string reason;
  Checkpointer now(s.world,
                   {folder,
                    {},
                    folder == s.saving.folder ? s.saving.keep : 0,
                    [&reason](const std::string& text) { reason = text; }},
                   s.job, s.engine.t());
  now.save(s.engine.t(), [&s] { return s.snapshot(); });
  if (!now.finish()) {
    fail<ConfigError>("cannot save to {}: {}", folder, reason.empty() ? "another rank could not write" : reason);
  }
}

std::int64_t Session::resume(const std::string& where) {
  State& s = *state_;
  check(s.engine.t() == 0, "resume() after {} steps; it comes before the first", s.engine.t());
  const auto checkpoint = find_checkpoint(where);
  const CheckpointMeta saved = CheckpointMeta::read(checkpoint);
  const std::string text = saved.to_json();
  require_same(s.world,
               {{"step of the checkpoint", fmt::format("{}", saved.step)},
                {"hash of its meta.json", fmt::format("{:016x}", hash_bytes(std::as_bytes(std::span(text))))}},
               "let all ranks resume from one folder that all of them see");
  s.job.require_fits(saved, checkpoint);
  s.restore(read_rank(checkpoint, saved, s.world.rank()), saved.step);
  s.checkpoints.reset();
  s.open_checkpoints();  // counts from here
  return saved.step;
}

NamedTensors Session::state() {
  StateArchive archive;
  save_state(archive, state_->engine, state_->model.flat());
  archive.put(kSteps, state_->engine.t());
  return as_torch(archive.tensors({}));
}

void Session::set_state(const NamedTensors& state) {
  StateArchive archive;
  std::int64_t steps = -1;
  for (const auto& [name, tensor] : state) {
    if (name == kSteps) {
      steps = tensor.item<std::int64_t>();
      continue;
    }
    StateArchive one = archive_of(name, tensor);
    archive.take(one, name);
  }
  if (steps < 0) fail<ConfigError>("saved state has no '{}'; it is not a session's", kSteps);
  restore_state(archive, state_->engine, state_->model.flat(), steps);
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
