// SPDX-License-Identifier: Apache-2.0
//
// A training job inside a SimWorld: every rank drives the Engine that a Session drives, on a toy task and in virtual
// time. Used by tests, fault tests and the planner.
//
// A step: gradients are computed, time passes bucket by bucket from the model's end to its start, each bucket is
// reported ready, then Engine::step. Servers, where the strategy needs them, are further ranks. No rank leaves before
// all have finished. The weights of rank 0 are copied to all ranks before on_start, unmetered.
//
// Save and resume: with `stop_after` the job ends between two steps without on_finish and `saved` holds all state;
// given as `resume` to the same options it continues from there. With `checkpoints` it saves files on the way, as a
// Session does, and `resume_from` continues from one of them.
//
// Elastic jobs: a job is one group. If it fails, the survivors' results say what they take along; given as `bring` to
// another job, of any number of ranks, training continues there.
#pragma once

#include <slipstream/engine/step_record.h>
#include <slipstream/strategy/strategy.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/state_archive.h"
#include "engine/checkpointer.h"
#include "engine/regroup.h"
#include "sim/sim_hooks.h"
#include "sim/sim_world.h"
#include "task/toy.h"

namespace slipstream {

struct SimJobState {
  std::int64_t next_step = 0;
  std::vector<StateArchive> ranks;
};

struct SimJobOptions {
  SimWorldOptions world;
  std::shared_ptr<const ToyTask> task;
  std::function<std::unique_ptr<Strategy>()> make_strategy;
  const Chooser* chooser = nullptr;  // for `auto`; null: it stays dense
  int servers = 0;                   // ranks that only serve, for strategies that need them; 0: one beside every worker
  OptimizerOptions optimizer;
  std::function<double(std::int64_t)> lr;  // by step; empty: optimizer.lr throughout
  std::int64_t steps = 10;
  std::uint64_t seed = 1;  // for the first weights

  double compute_seconds = 0.010;                 // of one step
  double forward_share = 1.0 / 3;                 // share before the first gradient is ready
  std::vector<double> backward_shares;            // shares of the rest, by slot; empty: by their sizes
  std::vector<double> compute_factors;            // by rank: stragglers; empty: all 1
  std::vector<std::vector<double>> step_factors;  // by rank and step, both repeated; empty: all 1

  HookCosts charged;           // time that hooks and servers take; by default none
  double io_s_per_byte = 0;    // time that a hidden byte, sent or received, adds to computing, because cores are shared
  bool measure_costs = false;  // SimRankResult::costs and state_floats
  double cpu_clock = 0;        // seconds that a strategy's clock advances per second its hooks take here; 0: none

  bool health = false;  // exchange health reports, as a Session does; takes some time on the wire

  std::optional<std::int64_t> stop_after;  // stop and save after this many steps of the job
  const SimJobState* resume = nullptr;

  std::vector<Holdings> bring;  // by rank, for a later group of an elastic job; empty: all are new

  std::optional<Checkpointer::Options> checkpoints;
  std::filesystem::path resume_from;  // a checkpoint, or a folder of them; empty: from the start

  // Called after every step of every rank.
  std::function<void(int rank, std::int64_t t, std::span<const float> weights)> on_step_end;
};

using SimStepRecord = StepRecord;  // in virtual time: the same on every run

struct SimRankResult {
  RankOutcome outcome;
  std::vector<float> weights;        // at the end; empty where the rank did not finish
  std::vector<SimStepRecord> steps;  // those it completed
  SimStepRecord start, finish;       // traffic and time of on_start and on_finish
  std::optional<Holdings> left;      // if its group failed while it trained: for the next group
  HookCosts costs;                   // with measure_costs: measured on this processor
  std::size_t state_floats = 0;      // … and what optimizer and strategy keep from step to step
};

struct SimServerResult {
  RankOutcome outcome;
  double bytes_sent = 0, bytes_received = 0;  // over the wire: not those of the worker beside it
  double bytes_handled = 0;                   // from all workers, without heads
  double handling_s = 0;                      // with measure_costs
};

struct SimJobResult {
  std::vector<SimRankResult> ranks;
  std::vector<SimServerResult> servers;
  double seconds = 0;                // virtual, until the last rank ended
  std::optional<SimJobState> saved;  // with stop_after, if all ranks got there

  bool all_finished() const;
  bool agreement() const;  // all finished, with bit-identical weights
};

SimJobResult run_sim_job(const SimJobOptions& options);

}  // namespace slipstream
