// SPDX-License-Identifier: Apache-2.0
//
// Strategy: one data-parallel algorithm. Gradients come in through the hooks; a model ready for the next forward pass
// is left behind. All hooks are called on the training thread, in this order:
//
//   on_start                         once; weights are already equal on all ranks
//   on_bucket_ready  × buckets       during the (last) backward of a step, in plan order: start things, never wait
//   on_step                          backward is done: leave the model ready for the next forward
//   on_finish                        once: drain what is in flight, leave equal weights on all ranks
//
// A strategy holds no locks, threads, timers or statics, and keeps no pointer to what a Step refers to beyond the job.
#pragma once

#include <slipstream/base/state.h>
#include <slipstream/fabric/fabric.h>
#include <slipstream/model/bucket_plan.h>
#include <slipstream/model/flat_model.h>
#include <slipstream/optim/optimizer.h>

#include <cstdint>
#include <span>
#include <string>

namespace slipstream {

class Chooser;

struct Step {
  std::int64_t t;  // 0 for the first step
  FlatModel& model;
  Optimizer& opt;
  Fabric& net;
  double loss = 0.0;        // of this worker's batch; only in on_step
  bool left_alone = false;  // set by on_bucket_ready where it did not use the gradients: they may change until on_step
  std::span<const Bucket> buckets{};  // the plan, as Strategy::buckets() asked for it
  const Chooser* chooser = nullptr;   // plans, for a strategy that chooses another one (auto); null: none
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual bool needs_servers() const { return false; }  // see Fabric::servers and server/client.h
  virtual BucketRule buckets() const { return BucketRule::by_bytes(1 << 20, 25 << 20); }
  // What this strategy asks of the optimizer; decides which state the optimizer holds.
  virtual OptimizerUse optimizer_use() const { return needs_servers() ? OptimizerUse::kNothing : OptimizerUse::kSteps; }
  // Does clip_norm limit each worker's own gradient, before on_bucket_ready? It must where part of a gradient is owed
  // or goes to servers; otherwise the optimizer clips what it steps with, such as the mean.
  virtual bool clips_own() const { return optimizer_use() != OptimizerUse::kSteps; }

  virtual void on_start(Step&) {}
  virtual void on_bucket_ready(Step& s, const Bucket&) { s.left_alone = true; }
  virtual void on_step(Step&) = 0;
  virtual void on_finish(Step&) {}

  // Names every piece of state that outlives a step. Called between steps, on all ranks; a restore happens after
  // on_start.
  virtual void visit(StateVisitor&) = 0;

  // What this worker has held back and still owes to the model (error feedback), the memory itself; empty if nothing.
  // visit() names it "residual". It survives a change of the group of workers (engine/regroup.h).
  virtual std::span<float> owed() { return {}; }

  // What was decided since the last call, such as a plan made from measurements, in one line; empty if nothing. The
  // engine asks after every step and writes it to the ledger and, with --verbose, to the terminal.
  virtual std::string news() { return {}; }
};

}  // namespace slipstream
