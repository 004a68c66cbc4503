// SPDX-License-Identifier: Apache-2.0
//
// LrSchedule: the learning rate of step t, a pure function of t and the base rate, so that a resumed job needs no state
// for it. During the warm-up the rate climbs in equal steps to the base rate; then, by kind:
//
//   constant   base
//   step       base * gamma^(t / step_every)                                          (whole division, from step 0 on)
//   cosine     final + (base - final) * (1 + cos(pi * (t - warmup) / (total - warmup))) / 2, and final from total on
//
// It does not scale the rate with the number of workers.
#pragma once

#include <slipstream/base/option.h>

#include <cstdint>
#include <string>

namespace slipstream {

struct LrSchedule {
  std::string kind = "constant";  // constant | step | cosine
  std::int64_t warmup_steps = 0;
  std::int64_t step_every = 1000;
  double step_gamma = 0.1;
  double final_lr = 0.0;         // cosine
  std::int64_t total_steps = 0;  // cosine; the job's length, set by the code that runs it

  double at(std::int64_t t, double base_lr) const;

  // Throws ConfigError where the fields contradict each other; call it once total_steps is known.
  void validate(double base_lr) const;
  void describe(OptionSet& o);
};

}  // namespace slipstream
