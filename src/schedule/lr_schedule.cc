// SPDX-License-Identifier: Apache-2.0
#include "schedule/lr_schedule.h"

#include <slipstream/base/error.h>

#include <cmath>
#include <numbers>

#include "schedule/warmup.h"

namespace slipstream {

double LrSchedule::at(std::int64_t t, double base_lr) const {
  const Warmup warmup{warmup_steps};
  if (warmup.active(t)) return base_lr * warmup.fraction(t);
  if (kind == "step") return base_lr * std::pow(step_gamma, static_cast<double>(t / step_every));
  if (kind == "cosine") {
    if (t >= total_steps) return final_lr;
    const double way = static_cast<double>(t - warmup_steps) / static_cast<double>(total_steps - warmup_steps);
    return final_lr + (base_lr - final_lr) * 0.5 * (1.0 + std::cos(std::numbers::pi * way));
  }
  return base_lr;
}

void LrSchedule::validate(double base_lr) const {
  LrSchedule checked = *this;
  OptionSet described("learning rate schedule");
  checked.describe(described);
  for (const Option& option : described.all()) option.set(option.get());

  if (kind != "cosine") return;
  if (total_steps <= warmup_steps) {
    fail<ConfigError>(
        "lr_schedule=cosine has no steps left after the warm-up: the job has {} steps and lr_warmup_steps "
        "is {}; train longer or warm up less",
        total_steps, warmup_steps);
  }
  if (final_lr > base_lr) {
    fail<ConfigError>("lr_final = {} is above lr = {}, and lr_schedule=cosine only goes down; swap them", final_lr,
                      base_lr);
  }
}

void LrSchedule::describe(OptionSet& o) {
  o.choice("lr_schedule", kind, {"constant", "step", "cosine"}, kChangesResult,
           "how the learning rate changes: not at all, by a factor every lr_step_every steps, or along half a cosine "
           "down to lr_final at the last step");
  o.integer("lr_warmup_steps", warmup_steps, {0, 1'000'000'000}, kChangesResult,
            "steps over which the learning rate climbs to its full value; helps with many workers or a large rate");
  o.integer("lr_step_every", step_every, {1, 1'000'000'000}, kChangesResult,
            "lr_schedule=step: steps between two cuts, counted from the first step of the job");
  o.real("lr_step_gamma", step_gamma, {0.0, 1.0}, kChangesResult, "lr_schedule=step: the factor of each cut");
  o.real("lr_final", final_lr, {0.0, 1000.0}, kChangesResult, "lr_schedule=cosine: the learning rate at the end");
}

}  // namespace slipstream
