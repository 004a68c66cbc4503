// SPDX-License-Identifier: Apache-2.0
//
// Engine: the step loop of one worker, without torch. Session drives it with a module's gradients, SimJob with those of
// a toy task: what is tested in a SimWorld is what users run.
//
// It owns what a strategy needs (optimizer, meter, buckets, learning rate, step number), calls the strategy's hooks in
// their order, exchanges health reports, and times the phases of a step; nothing else has phase timers. Whoever drives
// it puts gradients into the model, reports slots as their gradients become complete, and calls step():
//
//   Engine engine(world, model, std::move(strategy), {.optimizer = …});
//   while (…) {
//     …                                 // gradients into model.grads()
//     engine.slot_ready(slot);          // as they become complete; step() takes the rest
//     engine.step(loss);
//   }
//   engine.finish();
//
// Training thread only. The engine's own messages (first weights, health reports) are not metered. It knows nothing of
// modules, buffers, files and processes.
#pragma once

#include <slipstream/engine/step_record.h>
#include <slipstream/fabric/fabric.h>
#include <slipstream/model/flat_model.h>
#include <slipstream/optim/optimizer.h>
#include <slipstream/strategy/strategy.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "correction/own_clip.h"
#include "engine/health.h"
#include "engine/regroup.h"
#include "fabric/metered_fabric.h"
#include "model/bucketizer.h"
#include "server/host.h"

namespace slipstream {

struct EngineOptions {
  OptimizerOptions optimizer{};
  std::function<double(std::int64_t)> lr{};  // learning rate by step; empty: optimizer.lr throughout
  std::function<void()> own_step{};          // moves the weights by the model's gradients, in place of `optimizer`
  bool health = true;                        // false: no reports, so that a simulation's times are the strategy's alone
  double bytes_scale = 1;                    // for a stand-in: how often each of its bytes counts where buckets are cut
  const Chooser* chooser = nullptr;          // see Step
  std::atomic<bool>* stop = nullptr;         // anybody may set it to end all ranks; the stopped engine clears it
  const Holdings* brings = nullptr;          // what this worker brings from another group, or from its checkpoint
  Meeting meeting{};                         // of all workers of the group: says whose weights all take
};

class Engine {
 public:
  // Copies the source's weights to all ranks, opens the servers where the strategy needs them, calls on_start, and
  // restores what this worker brought. The fabric and the model must outlive the engine.
  Engine(Fabric& world, FlatModel& model, std::unique_ptr<Strategy> strategy, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The slot's gradient is complete; its bucket may leave. A second report in one step is a ConfigError.
  void slot_ready(std::size_t slot) { bucketizer_.slot_ready(slot); }

  // A forward pass has lasted from `began` until now. Only for traces: nothing else tells it from backward.
  void forward_done(double began) { note_work(WorkRecord::Kind::kForward, {}, began); }

  // Backward is done. Leaves the model ready for the next forward pass, and its gradients zeroed. Stops all ranks at
  // the same step with DivergedError where any rank's loss is not finite, with Interrupted where any rank's stop flag
  // is set, and with GroupChanges where a process waits to join.
  const StepRecord& step(double loss);
  // The same with zero gradients: a step of other ranks for which this rank has no data (engine/pace.h). Its loss is
  // that of the last batch; the time since the last step counts as exposed.
  const StepRecord& step_without_data();

  // Drains the strategy, leaves equal weights on all ranks and says goodbye to the servers. Call it once. Throws
  // DivergedError instead, on all ranks, where any rank's loss was not finite and step() could not say so in time;
  // after catching that error, from here or from step(), finish() may be called again.
  void finish();
  // Instead of finish(): says goodbye to the servers and leaves everything as it is, for a job that was saved and
  // continues elsewhere, or with another engine.
  void leave(Goodbye why = Goodbye::kDone);

  // Returns what this worker takes to the next group. `in_order`: all ranks do so after the same step, and nobody was
  // lost; then the strategy is drained first. The engine cannot be used afterwards.
  Holdings release(bool in_order);

  std::int64_t t() const { return first_ + step_.t; }  // the current step
  const std::vector<Bucket>& buckets() const { return bucketizer_.plan(); }
  Optimizer& optimizer() { return *optimizer_; }
  Strategy& strategy() { return *strategy_; }
  // Changes the learning-rate factor of a parameter group from the next step on; the same on all ranks. Throws
  // ConfigError where servers move the weights: servers learn the factors only at the start.
  void set_lr_factor(std::size_t group, double factor);
  // The engine's own state that outlives a step; not that of the weights, the optimizer and the strategy.
  void visit(StateVisitor& v);
  // Tells the engine that all state was restored as it was before step t. Call between construction and the first step.
  void go_on_from(std::int64_t t);

  void skip_time() { step_began_ = world_.clock().now(); }  // time since the last step counts for no step

  // Time and traffic of the start and the end, outside of steps.
  const StepRecord& start_record() const { return start_; }
  const StepRecord& finish_record() const { return finish_; }

  // Called when the strategy has used a bucket's gradients: they must not change until step() is done.
  std::function<void(const Bucket&)> on_taken;

  // Called after every step with its traffic, before step() returns or stops.
  std::function<void(const StepRecord&, const Traffic&)> on_record;

 private:
  void adopt(const Holdings& mine, const Meeting& meeting);
  void set_lr();
  void note_work(WorkRecord::Kind kind, std::string_view bucket, double began);
  void bucket_ready(const Bucket& bucket);
  void hand_over(const Bucket& bucket);
  void clip_held();
  void note_trouble(double loss);
  bool exchange_health();
  void heed_newcomers();
  void refuse_divergence();
  void heed_stop();
  StepRecord record_of(double began, double ended, const Traffic& traffic) const;

  Fabric& world_;
  FlatModel& model_;
  std::int64_t first_;        // the job's step at which the strategy's count began
  const std::int64_t group_;  // number of the group of workers
  const std::function<double(std::int64_t)> lr_;
  std::atomic<bool>* const stop_;
  std::optional<ServerHost> host_;  // the parameter server beside this worker
  MeteredFabric net_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Strategy> strategy_;  // declared after what its operations in flight use
  Step step_;
  Bucketizer bucketizer_;
  std::vector<std::string> bucket_names_;  // by index: names of their layers
  std::optional<OwnClip> clip_;            // where the strategy wants each worker's own gradient clipped
  std::vector<Bucket> held_;               // buckets that wait until the whole gradient is there
  std::unique_ptr<Health> health_;         // empty: switched off
  Health::Report report_;
  bool diverged_ = false;  // all ranks have thrown DivergedError

  bool stopped_ = false;       // at the user's request
  bool without_data_ = false;  // the step under way
  std::int64_t rate_of_ = -1;  // the step that the learning rate was set for
  double step_began_ = 0;
  double idle_seconds_ = 0;       // waited for others to begin this step
  double hook_seconds_ = 0;       // spent in the strategy's hooks, this step
  double optimizer_seconds_ = 0;  // update time up to the last step
  std::vector<WorkRecord> work_;  // of this step
  StepRecord start_, record_, finish_;
};

}  // namespace slipstream
