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
// Ranks may have different numbers of batches. One that has no more calls finish() (or join()) and takes part in the
// others' steps with zero gradients, until all have none; the mean stays one over all P workers. A strategy of local
// steps averages such a rank's weights like any other's. Equal numbers cost nothing. Not in a SimWorld.
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
  std::function<void(const std::string&)> warn{};               // one could not be written: training goes on
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
  // Not empty: moves the parameters by their gradients, in place of `optimizer` (of which clip_norm stays). For
  // strategies whose OptimizerUse is kSteps; its state is the caller's to save.
  std::function<void()> own_step{};
  // Parameters that are not float32 on the CPU are staged (model/torch_model.h): the session trains float32 masters, and
  // copies gradients in and weights out. True: all are. Weights are then loaded into the module before the session.
  bool stage = false;
  Registry registry = Registry::builtin();
  CheckpointOptions checkpoint{};
  // Where the loop around the session stands, such as a position in its data: kept in checkpoints, and taken from the
  // worker that has trained furthest when the group of an elastic job changes. The same on all ranks.
  std::function<void(StateVisitor&)> loop{};
  std::vector<std::pair<std::string, std::string>> alike{};  // what else all ranks must have been given alike
};

// How the group of workers of an elastic job has changed.
struct Regrouped {
  int lost = 0, joined = 0;
  double written_off = 0;  // the norm of what the lost ones owed, when they last told
};

class Session {
 public:
  // Makes rank 0's weights everybody's; of an elastic job that is under way, those it has reached. The fabric must outlive
  // the session. Throws ConfigError on all ranks where they were not given the same options or modules; it names the
  // first difference.
  Session(Fabric& world, const torch::nn::Module& module, const SessionOptions& options);
  // The same for a module of another language.
  Session(Fabric& world, const ModuleTensors& module, const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Call after the (last) backward pass of a step. Stops the job on all ranks, at the same step, with DivergedError
  // where any rank's loss is not finite, and with Interrupted after request_stop() on any rank. Throws ConfigError where a
  // gradient was changed after it had left. What went wrong during backward is thrown here as well, or in join() and
  // finish(): torch would take its type away.
  const StepRecord& step(double loss);

  // Another factor of the learning rate for a parameter group, counted from 0, from the next step on; the same on all
  // ranks. Throws ConfigError with strategies whose servers move the weights: they learn the factors once.
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

  // A forward pass lasts as long as this lives. Needed by nobody: a trace can tell it from backward then.
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

  // The gradient of parameter i, counted as Session got them, was written to its .grad without a backward pass.
  void gradient_ready(std::size_t i);

  // Forgets the gradients of backward passes since the last step(); free where there were none.
  void zero_grad();

  // No more data, for now: takes the others' steps with them until they have called it, too, at the same step. Then all
  // may go on, with an evaluation or the next epoch. Such steps have records, whose news says so, and stop as step() does.
  void join();
  // Joins, drains the strategy, leaves equal weights on all ranks and averages the module's buffers. Once, later calls
  // do nothing; after an error of the kind that step() stops with, again. No step() follows. Throws DivergedError where any rank's loss was not finite and no
  // step() has said so yet.
  void finish();

  // Elastic jobs: the group has failed (GroupFailed) or shall change (`in_order`: GroupChanges, after the same step on all
  // ranks). Leaves it, waits for the next one and goes on there, where the worker that had come furthest stood: steps()
  // and SessionOptions::loop tell. Rank and size of the fabric may be others.
  Regrouped regroup(bool in_order);

  // All state of all ranks, durable in FOLDER/step-…  when it returns: a collective between two steps. ConfigError on all
  // ranks where one cannot write. With SessionOptions::checkpoint step() does so by itself, and waits for a copy only.
  void save_checkpoint(const std::string& folder);
  // Before the first step, a collective: goes on from a checkpoint, or the latest one of a folder, as if training had
  // never stopped. Returns the number of steps done. ConfigError where this job is another one, with the difference;
  // DataError, with the file and the place, for damaged files.
  std::int64_t resume(const std::string& where);

  // The state of this rank alone that outlives a step, by name: weights, the optimizer's and the strategy's state, the
  // number of steps; not the buffers. Collectives between two steps. A session with the same options goes on from it bit
  // for bit. ConfigError, with the name, where it does not fit.
  NamedTensors state();
  void set_state(const NamedTensors& state);

  // While it lives the module holds the mean over all ranks, weights and buffers alike: one model to evaluate or save in
  // mid-training, also where the workers of a strategy differ between averages. A collective between two steps; its time
  // is no step's.
  class Average {
   public:
    Average(Average&&) noexcept;
    ~Average();

   private:
    friend class Session;
    struct Own;
    explicit Average(std::unique_ptr<Own> own);
    std::unique_ptr<Own> own_;  // what this rank has in its place
  };
  [[nodiscard]] Average average();

  void average_buffers();                    // the same of the buffers alone, for good
  void save(const std::string& path) const;  // a state dict for Python's torch.load
  bool agreement();                          // are the weights bit-identical on all ranks? (a collective)
  std::uint64_t weights_hash();

  // Asks all ranks to stop soon, at one agreed step; spent once it has stopped a session. Safe in a signal handler.
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
