// SPDX-License-Identifier: Apache-2.0
//
// predict: what a strategy would do with the job that a profile describes. It runs the strategy's own code on a
// stand-in for the model in a SimWorld, twice: once to see what its hooks cost the processor, and once with these costs
// passing as time. With more than 8 workers the costs are measured with 4 and 8, and extrapolated linearly.
//
// It reports means over a whole number of the strategy's periods, at the end of a simulation long enough for warm-ups
// and first plans to be over.
#pragma once

#include <slipstream/strategy/registry.h>

#include <string>
#include <vector>

#include "plan/plan_profile.h"
#include "sim/sim_job.h"
#include "strategy/contender.h"

namespace slipstream {

struct Prediction {
  Contender contender;
  double step_s = 0, encode_s = 0, exposed_s = 0;  // of a step; encode is what hooks take beyond a dense update
  double hidden = 1;                               // share of the wire time during which no worker waited
  double efficiency = 1;                           // what one worker alone would take / step_s
  double bytes_sent = 0;                           // by a worker in a step, mean over workers
  double bytes_busiest = 0;                        // in a step through the busiest port, in its busier direction
  double copies = 0;  // copies of the model per worker: weights, gradients, state kept from step to step
  bool equal = true;  // do all workers have the same weights after every step?
  std::int64_t first_step = 0, steps = 0;  // steps that the means are over, counted from the start of the simulated job
  std::string news{};                      // the strategy's latest
  std::string refused{};                   // why there is no prediction
};

class Predictor {
 public:
  // The registry must outlive it.
  Predictor(PlanProfile profile, const Registry& registry);

  // ConfigError for options that do not exist; if a strategy refuses the job, the prediction says why.
  Prediction predict(const Contender& contender);
  const PlanProfile& profile() const { return profile_; }

 private:
  struct Costs {
    HookCosts hooks;
    double server_s_per_moved_byte = 0;  // per byte that the servers send and receive over the wire
    double copies = 0;
    bool equal = true;
  };
  SimJobOptions job(const Contender& contender, int workers, std::int64_t steps) const;
  Costs costs(const Contender& contender, std::int64_t steps) const;
  Costs measured_costs(const Contender& contender, int workers, std::int64_t steps) const;
  HookCosts charged(const Contender& contender, Costs& of, std::int64_t steps);
  Prediction simulate(const Contender& contender);

  const PlanProfile profile_;
  const Registry& registry_;
  std::shared_ptr<const StandIn> model_;  // of the current prediction
  double dense_update_s_ = -1;            // time of ssgd's on_step; negative: not measured yet
};

}  // namespace slipstream
