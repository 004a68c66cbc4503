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
#include <set>

#include "base/hash.h"
#include "base/vec.h"
#include "engine/agreement.h"
#include "engine/checkpointer.h"
#include "engine/engine.h"
#include "engine/groups.h"
#include "engine/job_state.h"
#include "engine/pace.h"
#include "fabric/c10d_sums.h"
#include "model/torch_model.h"
#include "plan/plan_chooser.h"
#include "runtime/launch.h"
#include "runtime/model_file.h"
#include "topology/average.h"

namespace slipstream {
namespace {

std::atomic<bool> stop_flag{false};  // set by signal handlers, cleared by the engine that was stopped

constexpr int kMean = -1;

// Makes the tensors equal on all ranks: one rank's values or, with kMean and floating point, the mean.
void share(Fabric& net, std::vector<torch::Tensor>& tensors, int source) {
  torch::NoGradGuard no_grad;
  for (torch::Tensor& t : tensors) {
    const bool mean = source == kMean && t.is_floating_point();
    auto values = t.to(torch::kCPU, torch::kDouble).contiguous().view({-1});
    // A sum with zeros from all others is a broadcast. Each double goes as two floats, which is exact for what
    // buffers hold: fp32 statistics, counters below 2^48.
    auto high = values.to(torch::kFloat);
    auto low = (values - high.to(torch::kDouble)).to(torch::kFloat).masked_fill(high.isinf(), 0);  // inf - inf is NaN
    auto both = torch::cat({high, low}).contiguous();
    if (!mean && net.rank() != std::max(source, 0)) both.zero_();
    net.sum({both.data_ptr<float>(), static_cast<std::size_t>(both.numel())}).wait();
    auto halves = both.to(torch::kDouble).view({2, -1});
    auto result = halves[0] + halves[1];
    if (mean) result = result / net.size();
    t.copy_(result.view(t.sizes()));
  }
}

// The strategy, made after checking that options, parameters and library version are equal on all ranks.
std::unique_ptr<Strategy> agreed_strategy(Fabric& world, TorchModel& model, const SessionOptions& options) {
  const auto configured = options.registry.configure(options.strategy, options.set);
  Facts facts{{"version", version()}, {"strategy", options.strategy}};
  for (const auto& [name, value] : options.alike) facts.push_back({name, value});
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

// Two sessions on one fabric would take each other's messages, so only one may be at work.
class OneAtWork {
 public:
  explicit OneAtWork(const Fabric& fabric) : fabric_(&fabric) {
    const std::lock_guard lock(mutex);
    if (!fabrics.insert(fabric_).second) {
      fail<ConfigError>("another Session is at work on this fabric; call its finish(), or destroy it, before the next");
    }
  }
  ~OneAtWork() {
    const std::lock_guard lock(mutex);
    fabrics.erase(fabric_);
  }
  OneAtWork(const OneAtWork&) = delete;
  OneAtWork& operator=(const OneAtWork&) = delete;

 private:
  static inline std::mutex mutex;
  static inline std::set<const Fabric*> fabrics;  // guarded
  const Fabric* const fabric_;
};

constexpr const char* kRandom = "random/torch";
constexpr const char* kSteps = "steps";

}  // namespace

struct Session::State {
  Fabric& world;
  std::optional<OneAtWork> at_work;  // until finish()
  TorchModel model;
  const SessionOptions options;
  const PlanChooser chooser{options.registry};
  std::optional<Engine> engine;             // of the current group
  std::optional<Pace> pace;                 // empty: alone, or simulated
  CheckpointMeta job;                       // all but step and files
  std::optional<Checkpointer> checkpoints;  // empty: no automatic checkpoints
  double unsaved_seconds = 0;               // since the last checkpoint, when the last group ended
  Holdings holdings;                        // what this rank takes from one group to the next

  State(Fabric& fabric, const ModuleTensors& module, const SessionOptions& given)
      : world(fabric), at_work(std::in_place, fabric), model(module, given.stage), options(given) {
    if (model.stages() && options.own_step) {
      fail<ConfigError>(
          "the optimizer's own step needs parameters that are float32 on the CPU; use SGD, Adam or AdamW, whose rules "
          "Slipstream has, without own_step");
    }
  }

  // Makes everything that belongs to a group of workers, which has just formed and may contain workers that have
  // trained. If it throws, nothing is lost: the holdings are unchanged.
  Meeting start(Session& session) {
    if (holdings.weights.empty()) {  // new here: rank 0's first weights must survive a start that fails
      const auto weights = model.flat().weights();
      holdings.weights.assign(weights.begin(), weights.end());
    }
    auto strategy = agreed();
    const Meeting meeting = meet(world, holdings);
    engine.emplace(world, model.flat(), std::move(strategy),
                   EngineOptions{.optimizer = options.optimizer,
                                 .lr = options.lr,
                                 .own_step = options.own_step,
                                 .chooser = &chooser,
                                 .stop = &stop_flag,
                                 .brings = &holdings,
                                 .meeting = meeting});
    share(world, model.others(), meeting.source);
    if (options.loop) {
      FromSource taken(world, meeting.source);
      options.loop(taken);
    }
    if (world.size() > 1 && world.can_listen()) pace.emplace(world);
    describe_job();
    open_checkpoints();
    engine->on_taken = [this](const Bucket& bucket) {
      begin_step();
      model.seal(bucket.first_slot, bucket.end_slot);
    };
    engine->on_record = [this, &session](const StepRecord& record, const Traffic& traffic) {
      model.unseal();
      if (session.on_record) session.on_record(record, traffic);
    };
    holdings = {};
    model.publish();
    world.holds_training();
    return meeting;
  }

  // A newcomer with other options leaves with an error; the workers that have trained go on without it.
  std::unique_ptr<Strategy> agreed() {
    try {
      return agreed_strategy(world, model, options);
    } catch (const ConfigError& e) {
      if (holdings.steps < 0) throw;
      fail<GroupFailed>("a worker that wanted to join does not fit: {}", e.what());
    }
  }

  // Repeats start() until a group works: a worker may be lost before all have what they need. After a failure it puts
  // back what start() has overwritten apart from the weights.
  Meeting start_for_sure(Session& session) {
    StateArchive loop;
    if (options.loop) loop.save("", options.loop);
    std::vector<torch::Tensor> others;
    for (const torch::Tensor& other : model.others()) others.push_back(other.clone());
    for (;;) {
      try {
        return start(session);
      } catch (const GroupFailed&) {
        end_group();
        if (options.loop) loop.restore("", options.loop);
        torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < others.size(); ++i) model.others()[i].copy_(others[i]);
        world.regroup();
      }
    }
  }

  // Keeps what this rank holds for the next group, and ends everything of this one.
  void leave_group(bool in_order) {
    try {
      if (in_order && checkpoints) checkpoints->finish();
      holdings = engine->release(in_order);
    } catch (const GroupFailed&) {  // a worker was lost after all
      holdings = engine->release(false);
    }
    end_group();
  }

  void end_group() {
    if (checkpoints) unsaved_seconds = checkpoints->seconds_since_last();
    checkpoints.reset();
    pace.reset();
    engine.reset();
    model.unseal();
    vec::zero(model.flat().grads());
  }

  void describe_job() {
    job = {};
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
    const CheckpointOptions& saving = options.checkpoint;
    const auto every = CheckpointEvery::parse(saving.every);
    if (every.never()) return;
    checkpoints.emplace(world, Checkpointer::Options{saving.folder, every, saving.keep, saving.warn, unsaved_seconds},
                        job, engine->t());
  }

  void snapshot(StateArchive& state) {
    save_state(state, *engine, model.flat());
    const auto add = [&state](const std::string& name, const torch::Tensor& tensor) {
      StateArchive one = archive_of(name, tensor);
      state.take(one, name);
    };
    for (std::size_t i = 0; i < model.others().size(); ++i) {
      add(kBufferPrefix + model.other_names()[i], model.others()[i]);
    }
    if (options.loop) state.save("loop/", options.loop);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    add(kRandom, generator.get_state());
  }

  void restore(const StateArchive& state, std::int64_t next_step) {
    restore_state(state, *engine, model.flat(), next_step);
    restore_rest(state);
    model.publish();
  }

  // Everything but the weights and the engine's state.
  void restore_rest(const StateArchive& state) {
    if (options.loop) state.restore("loop/", options.loop);
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
    model.publish();
    if (checkpoints) checkpoints->after_step(engine->t(), [this](StateArchive& state) { snapshot(state); });
  }

  // Adds the number of the step to network failures.
  template <typename Work>
  auto naming_step(const Work& work) -> decltype(work()) {
    const std::int64_t t = engine->t();
    try {
      return work();
    } catch (const GroupChanges&) {
      throw;
    } catch (FabricError& e) {
      e.add(fmt::format(", in step {}", t));
      throw;
    }
  }

  void slot_ready(std::size_t i) {
    naming_step([&] { engine->slot_ready(i); });
  }

  // This rank has data for step t. It cannot take that back.
  void begin_step() {
    if (pace) pace->begins(engine->t());
  }
};

Session::Session(Fabric& world, const torch::nn::Module& module, const SessionOptions& options)
    : Session(world, ModuleTensors::of(module), options) {}

Session::Session(Fabric& world, const ModuleTensors& module, const SessionOptions& options)
    : state_(std::make_unique<State>(world, module, options)) {
  State& s = *state_;
  s.start_for_sure(*this);
  s.model.on_gradient([&s](std::size_t slot) { s.slot_ready(slot); });
}

void Session::gradient_ready(std::size_t i) {
  if (!state_->model.held()) state_->slot_ready(i);
}

Session::~Session() = default;

const StepRecord& Session::step(double loss) {
  if (!state_->at_work) fail<ConfigError>("step() after finish(): training has ended; make another Session to go on");
  state_->model.settle_gradients();
  state_->begin_step();
  try {
    const StepRecord& record = state_->naming_step([&]() -> const StepRecord& { return state_->engine->step(loss); });
    state_->stepped();
    return record;
  } catch (const GroupChanges&) {  // the step counts, and a checkpoint may be due
    state_->stepped();
    throw;
  } catch (const FabricError&) {  // half a step was taken: whoever goes on is told the same, not its consequences
    state_->model.note_failure(std::current_exception());
    throw;
  }
}

Session::Forward::Forward(Session& session) : session_(session), began_(session.state_->world.clock().now()) {}
Session::Forward::~Forward() { session_.state_->engine->forward_done(began_); }

Session::Hold Session::hold() { return Hold(state_->model.held()); }
void Session::zero_grad() { state_->model.zero_gradients(); }

void Session::set_lr_factor(std::size_t group, double factor) { state_->engine->set_lr_factor(group, factor); }

void Session::join() {
  State& s = *state_;
  s.model.require_backward();
  // If gradients have left during a backward pass without a step(), the ranks stay as they are: all must have done the
  // same.
  if (!s.pace || s.pace->begun(s.engine->t())) return;
  while (s.pace->someone_goes_on(s.engine->t())) {
    s.engine->step_without_data();
    s.stepped();
  }
}

void Session::finish() {
  if (!state_->at_work) return;
  join();
  if (state_->checkpoints) state_->checkpoints->finish();
  state_->engine->finish();
  state_->model.publish();
  average_buffers();
  state_->pace.reset();
  state_->model.on_gradient({});  // backward passes from here on are nobody's but the caller's
  state_->at_work.reset();
}

void Session::save_checkpoint(const std::string& folder) {
  State& s = *state_;
  s.model.require_backward();
  if (s.checkpoints) s.checkpoints->finish();
  std::string reason;
  Checkpointer now(s.world,
                   {folder,
                    {},
                    folder == s.options.checkpoint.folder ? s.options.checkpoint.keep : 0,
                    [&reason](const std::string& text) { reason = text; }},
                   s.job, s.engine->t());
  now.save(s.engine->t(), [&s](StateArchive& state) { s.snapshot(state); });
  if (!now.finish()) {
    fail<ConfigError>("cannot save to {}: {}", folder, reason.empty() ? "another rank could not write" : reason);
  }
}

std::int64_t Session::resume(const std::string& where) {
  State& s = *state_;
  check(s.engine->t() == 0, "resume() after {} steps; it comes before the first", s.engine->t());
  const auto checkpoint = find_checkpoint(where);
  const CheckpointMeta saved = CheckpointMeta::read(checkpoint);
  const std::string text = saved.to_json();
  require_same(s.world,
               {{"step of the checkpoint", fmt::format("{}", saved.step)},
                {"hash of its meta.json", fmt::format("{:016x}", hash_bytes(std::as_bytes(std::span(text))))}},
               "let all ranks resume from one folder that all of them see");
  s.job.require_fits(saved, checkpoint);
  if (s.job.same_group(saved)) {
    s.restore(read_rank(checkpoint, saved, s.world.rank()), saved.step);
    s.checkpoints.reset();
    s.open_checkpoints();  // counts from this step
    return saved.step;
  }
  // With another number of workers or servers, continue as if the group had changed.
  s.holdings = holdings_from(checkpoint, saved, s.model.flat(), s.world.rank(), s.world.size());
  if (s.holdings.steps >= 0) s.restore_rest(read_rank(checkpoint, saved, s.world.rank()));
  s.engine->leave(Goodbye::kBackSoon);
  s.end_group();
  s.start_for_sure(*this);
  return saved.step;
}

Regrouped Session::regroup(bool in_order) {
  State& s = *state_;
  s.leave_group(in_order);
  s.world.regroup();
  const Meeting meeting = s.start_for_sure(*this);
  return {meeting.lost, meeting.joined, meeting.written_off};
}

NamedTensors Session::state() {
  StateArchive archive;
  save_state(archive, *state_->engine, state_->model.flat());
  archive.put(kSteps, state_->engine->t());
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
  restore_state(archive, *state_->engine, state_->model.flat(), steps);
  state_->model.publish();
}

struct Session::Average::Own {
  State& state;
  std::vector<float> weights;
  std::vector<torch::Tensor> others;
};

Session::Average::Average(std::unique_ptr<Own> own) : own_(std::move(own)) {}
Session::Average::Average(Average&&) noexcept = default;

Session::Average::~Average() {
  if (!own_) return;
  State& s = own_->state;
  torch::NoGradGuard no_grad;
  vec::copy(s.model.flat().weights(), std::span(own_->weights));
  s.model.publish();
  for (std::size_t i = 0; i < own_->others.size(); ++i) s.model.others()[i].copy_(own_->others[i]);
  if (s.engine) s.engine->skip_time();
}

Session::Average Session::average() {
  State& s = *state_;
  s.model.require_backward();
  const auto weights = s.model.flat().weights();
  auto own = std::make_unique<Average::Own>(Average::Own{s, {weights.begin(), weights.end()}, {}});
  for (const torch::Tensor& other : s.model.others()) own->others.push_back(other.clone());
  Average kept(std::move(own));  // also restores if a collective fails
  slipstream::average(s.world, weights);
  s.model.publish();
  share(s.world, s.model.others(), kMean);
  return kept;
}

void Session::average_buffers() { share(state_->world, state_->model.others(), kMean); }
void Session::save(const std::string& path) const { state_->model.save_state_dict(path); }
std::uint64_t Session::weights_hash() { return hash_bytes(std::as_bytes(state_->model.flat().weights())); }

bool Session::agreement() {
  state_->model.require_backward();
  const std::uint64_t mine = weights_hash();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(state_->world.size()));
  state_->world.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))).wait();
  return std::all_of(all.begin(), all.end(), [mine](std::uint64_t theirs) { return theirs == mine; });
}

bool Session::stop_requested() noexcept { return stop_flag.load(std::memory_order_relaxed); }
void Session::request_stop() noexcept { stop_flag.store(true, std::memory_order_relaxed); }
FlatModel& Session::model() { return state_->model.flat(); }
std::int64_t Session::steps() const { return state_->engine->t(); }

std::unique_ptr<Fabric> join() {
  const Placement placement = place({}, process_environment());
  return join_fabric(placement.supervisor ? Rendezvous{} : placement.at);
}

}  // namespace slipstream
