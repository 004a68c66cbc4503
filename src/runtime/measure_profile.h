// SPDX-License-Identifier: Apache-2.0
//
// measure_profile: a PlanProfile of the user's model on these machines, in seconds. All workers of a job call it
// together:
//
//   some steps without the network, all at once: when each gradient is ready, how steps and workers differ
//   some dense steps (ssgd): the update, and how much longer computing takes while bytes move
//   the link (topology/link_probe.h)
//
// The trained weights are discarded. No torch in this header.
#pragma once

#include <slipstream/fabric/rendezvous.h>

#include "plan/plan_profile.h"
#include "task/task_options.h"

namespace slipstream {

struct MeasuredProfile {
  PlanProfile profile;
  double dense_step_s = 0;  // measured time of a step of ssgd
};

// The result is the same on all ranks.
MeasuredProfile measure_profile(const TaskOptions& task, const OptimizerOptions& optimizer, const Rendezvous& at);

}  // namespace slipstream
