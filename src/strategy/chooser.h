// SPDX-License-Identifier: Apache-2.0
//
// Chooser: who tells `auto` which strategy to take, from what the job measured of itself. The planner is one
// (plan/plan_chooser.h); it stands above strategies, so the engine hands it to them (EngineOptions::chooser).
#pragma once

#include <slipstream/optim/optimizer.h>
#include <slipstream/strategy/strategy.h>

#include <memory>
#include <string>
#include <vector>

#include "topology/link_probe.h"

namespace slipstream {

// What the first steps of a job told; agreed by all ranks.
struct JobProfile {
  const FlatModel& model;
  int workers;
  std::vector<double>
      compute_s;  // of a step by bucket, each a tensor, in the order of backward; the first with forward
  double update_s = 0, dense_step_s = 0;
  LinkCosts link;
  const OptimizerOptions& optimizer;
};

class Chooser {
 public:
  virtual ~Chooser() = default;

  struct Choice {
    std::string strategy;  // NAME or NAME:KEY=VALUE,…; "ssgd": stay dense
    std::string why;       // one line
  };
  // `local`: also strategies whose workers differ between averages. Takes seconds; called on rank 0 alone.
  virtual Choice choose(const JobProfile& profile, bool local) const = 0;
  // Any that choose() may name. None of them needs servers.
  virtual std::unique_ptr<Strategy> make(const std::string& strategy) const = 0;
};

}  // namespace slipstream
