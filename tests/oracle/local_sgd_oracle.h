// SPDX-License-Identifier: Apache-2.0
//
// Local SGD: every worker has a model and an optimizer; after every tau-th step all models become their mean. During a
// warm-up all workers step with the mean gradient; tau is counted from its end. The end of the job is an average, too.
#pragma once

#include "oracle/oracle.h"

namespace slipstream::oracle {

inline Course local_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps, std::int64_t tau,
                        std::int64_t warmup) {
  const auto count = static_cast<std::size_t>(workers);
  Ranks w(count, problem.start()), velocity(count, Vec(problem.size));
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    Ranks g;
    for (int p = 0; p < workers; ++p) g.push_back(problem.gradient(w[static_cast<std::size_t>(p)], p, t));
    for (std::size_t p = 0; p < count; ++p) rule.step(w[p], velocity[p], t < warmup ? mean(g) : g[p], t);
    if (t >= warmup && (t - warmup) % tau == tau - 1) w = Ranks(count, mean(w));
    run.steps.push_back(w);
  }
  run.end = Ranks(count, mean(w));
  return run;
}

}  // namespace slipstream::oracle
