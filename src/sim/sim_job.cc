// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_job.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <numeric>
#include <utility>

#include "engine/engine.h"
#include "engine/job_state.h"
#include "fabric/metered_fabric.h"
#include "server/message.h"
#include "server/shard.h"

namespace slipstream {
namespace {

// The engine copies rank 0's weights to all ranks, unless a rank brings weights of a trained model.
FlatModel first_model(const SimJobOptions& options, int rank) {
  FlatModel model(options.task->parameters());
  if (rank == 0) options.task->init(model.weights(), options.seed);
  return model;
}

// Bytes that moved while the worker computed. Bytes are counted in the step that sends them, their time on the wire in
// the step that waits for them, which may be a later one: how much of them was hidden is known only then.
class HiddenBytes {
 public:
  // Bytes that are known to be hidden since the end of this step.
  double after(const StepRecord& step) {
    open_ += step.bytes_sent + step.bytes_received;
    if (step.wire_seconds <= 0) return 0;
    return std::max(0.0, 1 - step.exposed_seconds / step.wire_seconds) * std::exchange(open_, 0.0);
  }

 private:
  double open_ = 0;
};

struct FloatCounter final : StateVisitor {
  std::size_t count = 0;
  void floats(std::string_view, std::span<float> values) override { count += values.size(); }
  void integer(std::string_view, std::int64_t&) override {}
};

// One rank: the engine that a Session drives, driven by a toy task. Time passes only in explicit calls.
class SimWorker {
 public:
  SimWorker(const SimJobOptions& options, SimPort& port, SimRankResult& result)
      : options_(options),
        port_(port),
        result_(result),
        model_(first_model(options, port.rank())),
        brings_(brought()),
        meeting_(brings_ ? meet(port, *brings_) : Meeting{}),
        meter_(port, options.cpu_clock),
        engine_(metered() ? static_cast<Fabric&>(meter_) : port, model_, charged_strategy(),
                {.optimizer = options.optimizer,
                 .lr = options.lr,
                 .health = options.health,
                 .bytes_scale = options.world.bytes_scale,
                 .chooser = options.chooser,
                 .brings = brings_ ? &*brings_ : nullptr,
                 .meeting = meeting_}) {}

  void run(SimJobState& saved) {
    try {
      train(saved);
    } catch (const FabricError&) {
      result_.left = engine_.release(false);
      throw;
    }
  }

 private:
  bool metered() const { return options_.measure_costs || options_.cpu_clock > 0; }

  std::unique_ptr<Strategy> charged_strategy() {
    auto charged = std::make_unique<ChargedStrategy>(options_.make_strategy(), port_, options_.charged,
                                                     metered() ? &meter_ : nullptr);
    hooks_ = charged.get();
    return charged;
  }

  // What this rank brings from another group; nothing in the first group, or in one that continues unchanged.
  std::optional<Holdings> brought() const {
    if (!options_.bring.empty()) return options_.bring[static_cast<std::size_t>(port_.rank())];
    if (options_.resume_from.empty()) return {};
    const auto checkpoint = find_checkpoint(options_.resume_from);
    const CheckpointMeta saved = CheckpointMeta::read(checkpoint);
    if (saved.same_group(description())) return {};
    return holdings_from(checkpoint, saved, model_, port_.rank(), port_.size());
  }

  void train(SimJobState& saved) {
    result_.start = engine_.start_record();
    const auto rank = static_cast<std::size_t>(port_.rank());
    if (options_.resume) restore_state(options_.resume->ranks[rank], engine_, model_, options_.resume->next_step);
    if (!options_.resume_from.empty() && !brings_) resume_from_files();
    if (options_.checkpoints) checkpointer_.emplace(port_, *options_.checkpoints, description(), engine_.t());
    const std::int64_t end = std::min(options_.steps, options_.stop_after.value_or(options_.steps));
    while (engine_.t() < end) one_step();
    if (checkpointer_) checkpointer_->finish();
    if (options_.measure_costs) note_costs();
    if (options_.stop_after) {
      save_state(saved.ranks[rank], engine_, model_);
      engine_.leave();
    } else {
      engine_.finish();
      result_.finish = engine_.finish_record();
      float done = 1;
      port_.sum(std::span(&done, 1)).wait();
    }
    result_.weights.assign(model_.weights().begin(), model_.weights().end());
  }

  void one_step() {
    const std::int64_t t = engine_.t();
    port_.mark_step(t);
    const double loss = options_.task->gradient(model_.weights(), model_.grads(), port_.rank(), t);
    backward();
    result_.steps.push_back(engine_.step(loss));
    slowed_s_ = options_.io_s_per_byte * options_.world.bytes_scale * hidden_.after(result_.steps.back());
    if (options_.on_step_end) options_.on_step_end(port_.rank(), t, model_.weights());
    if (!checkpointer_) return;
    checkpointer_->after_step(engine_.t(), [this](StateArchive& state) { save_state(state, engine_, model_); });
  }

  void note_costs() {
    result_.costs = hooks_->measured(options_.steps);
    FloatCounter state;
    engine_.optimizer().visit(state);
    engine_.strategy().visit(state);
    result_.state_floats = state.count;
  }

  CheckpointMeta description() const {
    CheckpointMeta job{.workers = port_.size(), .servers = options_.servers};
    for (const Slot& slot : model_.slots()) {
      job.tensors.push_back({kModelPrefix + slot.name, {static_cast<std::int64_t>(slot.count)}});
    }
    return job;
  }

  void resume_from_files() {
    const auto checkpoint = find_checkpoint(options_.resume_from);
    const CheckpointMeta saved = CheckpointMeta::read(checkpoint);
    description().require_fits(saved, checkpoint);
    restore_state(read_rank(checkpoint, saved, port_.rank()), engine_, model_, saved.step);
  }

  // Time passes by slot, from the last to the first, as in autograd; a bucket's passes before its slots are reported.
  void backward() {
    const auto& factors = options_.compute_factors;
    const double factor = factors.empty() ? 1.0 : factors[static_cast<std::size_t>(port_.rank())];
    double total_s = options_.compute_seconds * factor;
    if (!options_.step_factors.empty()) {
      const auto& steps = options_.step_factors[static_cast<std::size_t>(port_.rank()) % options_.step_factors.size()];
      total_s *= steps[static_cast<std::size_t>(engine_.t()) % steps.size()];
    }
    total_s += slowed_s_;
    const double forward_s = model_.count() == 0 ? total_s : total_s * options_.forward_share;
    port_.compute(forward_s);
    for (const Bucket& bucket : engine_.buckets()) {
      if (const double share = share_of(bucket); share > 0) port_.compute((total_s - forward_s) * share);
      for (std::size_t slot = bucket.end_slot; slot-- > bucket.first_slot;) engine_.slot_ready(slot);
    }
  }

  double share_of(const Bucket& bucket) const {
    if (options_.backward_shares.empty()) {
      return bucket.count == 0 ? 0 : static_cast<double>(bucket.count) / static_cast<double>(model_.count());
    }
    const auto by_slot = options_.backward_shares.begin();
    return std::accumulate(by_slot + static_cast<std::ptrdiff_t>(bucket.first_slot),
                           by_slot + static_cast<std::ptrdiff_t>(bucket.end_slot), 0.0);
  }

  const SimJobOptions& options_;
  SimPort& port_;
  SimRankResult& result_;
  FlatModel model_;
  const std::optional<Holdings> brings_;
  const Meeting meeting_;
  HiddenBytes hidden_;
  double slowed_s_ = 0;  // time that moving hidden bytes adds to the next step's computing
  HookMeter meter_;
  ChargedStrategy* hooks_ = nullptr;  // owned by the engine
  Engine engine_;
  std::optional<Checkpointer> checkpointer_;
};

// A server as a rank of its own. The real ones are called as messages come in (server/host.h).
void run_server(SimPort& port, const SimJobOptions& options, SimServerResult& result) {
  struct Outgoing {
    ServerMessage::Frame frame;
    std::shared_ptr<const Floats> payload;
    InFlight sent;  // last: it uses the memory above
  };
  const int server = port.rank() - port.size();
  ShardServer shard(server, port.size());
  std::list<Outgoing> outbox;
  for (int goodbyes = 0; goodbyes < 2 * port.size();) {
    const SimLetter letter = port.next_letter();
    ServerMessage::Frame frame;
    check(letter.bytes.size() >= frame.size(), "a server got a message of {} bytes", letter.bytes.size());
    std::copy_n(letter.bytes.begin(), frame.size(), frame.begin());
    const auto message = ServerMessage::unpack(frame, letter.from);
    if (!port.beside(letter.from)) result.bytes_received += static_cast<double>(letter.bytes.size());
    goodbyes += message.kind == ServerMessage::Kind::kBye ? 1 : 0;
    const auto body = std::span(letter.bytes).subspan(frame.size());
    result.bytes_handled += static_cast<double>(body.size());
    if (options.charged.server_s_per_byte > 0) {
      port.compute(options.charged.server_s_per_byte * static_cast<double>(body.size()));
    }
    const double began_s = options.measure_costs ? HookMeter::thread_cpu_s() : 0;
    auto replies = shard.handle(letter.tag & kBackground, message, body);
    if (options.measure_costs) result.handling_s += HookMeter::thread_cpu_s() - began_s;
    for (auto& reply : replies) {
      reply.message.from = server;
      Outgoing& out = outbox.emplace_back(Outgoing{reply.message.pack(), std::move(reply.payload), {}});
      const auto bytes = out.payload ? std::as_bytes(std::span(*out.payload)) : std::span<const std::byte>();
      if (!port.beside(reply.to)) result.bytes_sent += static_cast<double>(out.frame.size() + bytes.size());
      out.sent = port.send(reply.to, kServerReplyTag | reply.lane, out.frame, bytes);
    }
    outbox.remove_if([](Outgoing& out) { return out.sent.done(); });
  }
  for (Outgoing& out : outbox) out.sent.wait();
}

void check_options(const SimJobOptions& options) {
  check(options.task && options.make_strategy, "a simulated job needs a task and a strategy");
  const auto ranks = static_cast<std::size_t>(options.world.ranks);
  if (!options.compute_factors.empty() && options.compute_factors.size() != ranks) {
    fail<ConfigError>("{} compute factors for {} ranks; give one for each or none", options.compute_factors.size(),
                      ranks);
  }
  if (options.resume && options.resume->ranks.size() != ranks) {
    fail<ConfigError>("the saved job has {} ranks, this one {}; resume with as many", options.resume->ranks.size(),
                      ranks);
  }
  const std::size_t slots = options.task->parameters().size();
  if (!options.backward_shares.empty() && options.backward_shares.size() != slots) {
    fail<ConfigError>("{} shares of backward for {} slots; give one for each or none", options.backward_shares.size(),
                      slots);
  }
  if (!(options.forward_share >= 0.0) || !(options.forward_share <= 1.0)) {
    fail<ConfigError>("forward_share = {} must lie between 0 and 1", options.forward_share);
  }
}

}  // namespace

bool SimJobResult::all_finished() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const SimRankResult& r) { return r.outcome.finished(); });
}

bool SimJobResult::agreement() const {
  return all_finished() && std::all_of(ranks.begin(), ranks.end(), [this](const SimRankResult& r) {
           const auto& first = ranks.front().weights;
           return r.weights.size() == first.size() &&
                  (first.empty() || std::memcmp(r.weights.data(), first.data(), first.size() * sizeof(float)) == 0);
         });
}

SimJobResult run_sim_job(const SimJobOptions& options) {
  check_options(options);
  const auto ranks = static_cast<std::size_t>(options.world.ranks);
  SimWorldOptions world_options = options.world;
  if (options.make_strategy()->needs_servers()) {
    world_options.servers = options.servers > 0 ? options.servers : options.world.ranks;
    world_options.servers_beside = options.servers == 0;
  }
  SimWorld world(world_options);
  SimJobResult result;
  result.servers.resize(static_cast<std::size_t>(world_options.servers));
  result.ranks.resize(ranks);
  SimJobState saved;
  saved.next_step = std::min(options.steps, options.stop_after.value_or(options.steps));
  saved.ranks.resize(ranks);
  const auto outcomes = world.run([&](SimPort& port) {
    if (port.rank() >= port.size()) {
      return run_server(port, options, result.servers[static_cast<std::size_t>(port.rank() - port.size())]);
    }
    SimWorker(options, port, result.ranks[static_cast<std::size_t>(port.rank())]).run(saved);
  });
  for (std::size_t r = 0; r < ranks; ++r) {
    result.ranks[r].outcome = outcomes[r];
    result.seconds = std::max(result.seconds, outcomes[r].ended_at);
  }
  for (std::size_t s = 0; s < result.servers.size(); ++s) result.servers[s].outcome = outcomes[ranks + s];
  if (options.stop_after && result.all_finished()) result.saved = std::move(saved);
  return result;
}

}  // namespace slipstream
