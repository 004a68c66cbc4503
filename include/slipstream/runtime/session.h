// SPDX-License-Identifier: Apache-2.0
//
// Session: one worker's training, made data-parallel. It owns what a strategy needs and runs the step: a user's own
// libtorch loop becomes distributed by constructing one and calling step() where optimizer.step() stood.
//
//   auto world = slipstream::join();                                   // torchrun, mpirun, srun or one process alone
//   slipstream::Session session(*world, *net, {.strategy = "local"});
//   for (auto& batch : my_shard(world->rank(), world->size())) {
//     auto loss = …;  loss.backward();
//     session.step(loss.item<double>());
//   }
//   session.finish();                                                  // equal weights on all ranks
//
// Gradients: backward accumulates into one flat buffer, which step() zeroes; a zero_grad that frees them costs a copy.
// For several backward passes per step keep a hold() alive during all but the last: only then do buckets leave while
// backward runs.
// Gradients that have left must not change: with a strategy that sends during backward, clip by the optimizer's
// clip_norm, or keep a hold() alive during all of backward and change what you like before step().
//
// Ranks may have different numbers of batches. A rank without more batches calls finish() (or join()) and takes part in
// the others' steps with zero gradients until no rank has any left; means are still over all P workers. A strategy of
// local steps averages such a rank's weights like any other's. Equal numbers cost nothing. Not in a SimWorld.
//
// The step itself is the Engine's (src/engine/engine.h); Session ties it to a torch module.
#pragma once

#include <slipstream/engine/step_record.h>
#include <slipstream/fabric/fabric.h>
#include <slipstream/model/module_tensors.h>
#include <slipstream/optim/optimizer.h>
#include <slipstream/strategy/registry.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace slipstream {

struct Traffic;

// Checkpoints on the way (docs/architecture.md, "Checkpoints"). The folder must be one that all ranks see.
struct CheckpointOptions {
  std::string folder{};
  std::string every{};                                          // "500" steps, "90s", "10min", "2h"; empty: never
  std::int64_t keep = 2;                                        // newest ones; 0: all
  std::function<void(const std::string&)> warn{};               // called when one cannot be written; training goes on
  std::vector<std::pair<std::string, std::string>> run_with{};  // what else must be equal to resume: seed, batch, …
};

// Parameter groups are the optimizer's:
//
//   .optimizer = {.kind = "adamw", .weight_decay = 0.1,
//                 .groups = {{.names = {"*.bias", "*norm*"}, .weight_decay = 0.0},
//                            {.names = {"head.weight"}, .lr_factor = 10.0}}}
struct SessionOptions {
  std::string strategy = "ssgd";
  std::vector<std::string> set{};  // options of the strategy, "key=value"
  OptimizerOptions optimizer{};
  std::function<double(std::int64_t)> lr{};  // learning rate by step; empty: optimizer.lr throughout
  // If set, it moves the parameters by their gradients in place of `optimizer` (whose clip_norm still applies). Only
  // for strategies whose OptimizerUse is kSteps; saving its state is up to the caller.
  std::function<void()> own_step{};
  // Parameters that are not float32 on the CPU are staged (model/torch_model.h): the session trains float32 masters,
  // copies gradients in and weights out. True: stage all parameters. With staging, load weights into the module before
  // making the session.
  bool stage = false;
  Registry registry = Registry::builtin();
  CheckpointOptions checkpoint{};
  // The state of the loop around the session, such as its position in the data. It is kept in checkpoints; when the
  // group of an elastic job changes, all take it from the worker that has trained furthest. The same on all ranks.
  std::function<void(StateVisitor&)> loop{};
  std::vector<std::pair<std::string, std::string>> alike{};  // what else must be equal on all ranks
};

// How the group of workers of an elastic job has changed.
struct Regrouped {
  int lost = 0, joined = 0;
  double written_off = 0;  // norm of what the lost workers owed, by their last reports
};

class Session {
 public:
  // Copies rank 0's weights to all ranks; in an elastic job that already runs, the weights it has reached. The fabric
  // must outlive the session. Throws ConfigError on all ranks where options or modules differ between ranks; it names
  // the first difference.
  Session(Fabric& world, const torch::nn::Module& module, const SessionOptions& options);
  // The same for a module of another language.
  Session(Fabric& world, const ModuleTensors& module, const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Call after the (last) backward pass of a step. Stops the job on all ranks, at the same step, with DivergedError
  // where any rank's loss is not finite, and with Interrupted after request_stop() on any rank. Throws ConfigError
  // where a gradient was changed after it had left. Errors of the backward pass are thrown here as well, or in join()
  // and finish(): torch would turn them into errors of another type.
  const StepRecord& step(double loss);

  // Changes the learning-rate factor of a parameter group, counted from 0, from the next step on; the same on all
  // ranks. Throws ConfigError with strategies whose servers move the weights: servers learn the factors only at the
  // start.
  void set_lr_factor(std::size_t group, double factor);

  // While this lives, backward passes only accumulate.
  class Hold {
   public:
    explicit Hold(bool& held) : held_(&held) { *held_ = true; }
    Hold(Hold&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
    ~Hold() {
      if (held_ != nullptr) *held_ = false;
    }

   private:
    bool* held_;
  };
  [[nodiscard]] Hold hold();

  // Marks a forward pass for as long as it lives. Optional: it lets a trace tell forward from backward.
  class Forward {
   public:
    explicit Forward(Session& session);
    ~Forward();
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

   private:
    Session& session_;
    const double began_;
  };

  // Reports that the gradient of parameter i (in the order Session got them) was written to its .grad without a
  // backward pass.
  void gradient_ready(std::size_t i);

  // Forgets the gradients of backward passes since the last step(); free where there were none.
  void zero_grad();

  // This rank has no more data for now: takes part in the others' steps until all ranks have called this, at the same
  // step. Then all may go on with an evaluation or the next epoch. Such steps have records, whose news says so, and
  // stop as step() does.
  void join();
  // Joins, drains the strategy, leaves equal weights on all ranks and averages the module's buffers. Later calls do
  // nothing, but after it threw an error that step() can throw too, it may be called again. No step() follows. Throws
  // DivergedError where any rank's loss was not finite and no step() has said so yet.
  void finish();

  // Elastic jobs: call it when the group has failed (GroupFailed) or is about to change (`in_order`: GroupChanges,
  // after the same step on all ranks). Leaves the group, waits for the next one and continues from the worker that had
  // trained furthest; steps() and SessionOptions::loop say where that is. The fabric's rank and size may change.
  Regrouped regroup(bool in_order);

  // Saves all state of all ranks, durable in FOLDER/step-… when it returns: a collective between two steps. ConfigError
  // on all ranks where one cannot write. With SessionOptions::checkpoint, step() saves by itself and waits only for a
  // copy in memory.
  void save_checkpoint(const std::string& folder);
  // Continues from a checkpoint, or from the latest one in a folder, as if training had never stopped. A collective,
  // before the first step. Returns the number of steps done. ConfigError, with the difference, where the checkpoint is
  // of another job; DataError, with the file and the place, for damaged files.
  std::int64_t resume(const std::string& where);

  // This rank's state that outlives a step, by name: weights, the optimizer's and the strategy's state, the number of
  // steps; not the buffers. Both are collectives between two steps. A session with the same options continues from it
  // bit for bit. ConfigError, with the name, where it does not fit.
  NamedTensors state();
  void set_state(const NamedTensors& state);

  // While it lives, the module holds the mean over all ranks, weights and buffers alike: one model to evaluate or save
  // in mid-training, also where a strategy's workers differ between averages. A collective between two steps; its time
  // counts for no step.
  class Average {
   public:
    Average(Average&&) noexcept;
    ~Average();

   private:
    friend class Session;
    struct Own;
    explicit Average(std::unique_ptr<Own> own);
    std::unique_ptr<Own> own_;  // this rank's own values, put back at the end
  };
  [[nodiscard]] Average average();

  void average_buffers();                    // the same for the buffers alone, permanently
  void save(const std::string& path) const;  // a state dict for Python's torch.load
  bool agreement();                          // are the weights bit-identical on all ranks? (a collective)
  std::uint64_t weights_hash();

  // Asks all ranks to stop soon, at one agreed step. One request stops one session. Safe in a signal handler.
  static void request_stop() noexcept;
  static bool stop_requested() noexcept;

  FlatModel& model();
  std::int64_t steps() const;

  // Called after every step with its traffic (for a trace), as soon as the step counts.
  std::function<void(const StepRecord&, const Traffic&)> on_record;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The fabric of this process: a worker of torchrun, Open MPI or SLURM where their environment variables are set, else
// alone.
std::unique_ptr<Fabric> join();

}  // namespace slipstream
