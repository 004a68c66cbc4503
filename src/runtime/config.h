// SPDX-License-Identifier: Apache-2.0
//
// TrainConfig: everything that `slipstream train` can be told. By precedence: flags, the TOML file of --config,
// defaults. Every key is described once (describe) and has the same name in all three: --lr-schedule on the command
// line is lr_schedule in the file. The strategy's options are in the file's table [set].
#pragma once

#include <slipstream/optim/optimizer.h>
#include <slipstream/strategy/registry.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/launch.h"
#include "schedule/lr_schedule.h"
#include "task/task_options.h"

namespace slipstream {

struct TrainConfig {
  std::string strategy = "ssgd";
  std::vector<std::string> set;  // "key=value" for the strategy
  std::int64_t epochs = 1;
  std::int64_t steps = 0;  // 0: as many as the epochs hold
  std::int64_t seed = 1;
  std::string out;  // empty: keep no files
  bool overwrite = false;
  std::string checkpoint_every;  // empty: never
  std::string checkpoint_dir;    // empty: out/checkpoints
  std::int64_t keep = 2;
  std::string resume;  // a checkpoint, a folder of them, or "latest": that of checkpoint_dir; empty: from the start
  std::string init;    // a model to begin with; empty: drawn from the seed
  std::int64_t eval_every = 0;  // steps; 0: at the end only
  std::int64_t trace_steps = 50;
  std::string dashboard;     // where rank 0 serves a page about the run: PORT or ADDRESS:PORT; empty: nowhere
  bool tensorboard = false;  // event files in out/tensorboard
  bool json = false;
  bool verbose = false;
  TaskOptions task;
  OptimizerOptions optimizer;
  std::string no_decay;  // parts of the names of parameters without weight decay, separated by commas
  LrSchedule schedule;
  LaunchOptions launch;

  void describe(OptionSet& o);

  // A strategy given as NAME:KEY=VALUE,… becomes NAME; the pairs go before those of `set`.
  void take_set_from_strategy();

  // The optimizer with no_decay as a parameter group.
  OptimizerOptions grouped_optimizer() const;
  std::string checkpoint_folder() const;  // empty where there is none

  // Sets the keys that the file has. ConfigError names the file, the line and the nearest valid key.
  void load_toml(const std::string& path);

  // All keys with their values, readable by load_toml. `registry` resolves the strategy's options.
  std::string to_toml(const Registry& registry) const;

  // What must be equal on all ranks, with its values: different flags on different machines would end in a hang or in
  // nonsense.
  std::vector<std::pair<std::string, std::string>> alike(const Registry& registry) const;

  // Checks what can be checked before a worker starts: strategy and its options, optimizer, task, output directory.
  void validate(const Registry& registry) const;
};

}  // namespace slipstream
