// SPDX-License-Identifier: Apache-2.0
//
// S-SGD: one model, one optimizer, the mean of all workers' gradients.
#pragma once

#include "oracle/oracle.h"

namespace slipstream::oracle {

inline Course sync_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps) {
  Vec w = problem.start(), velocity(problem.size);
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    Ranks g;
    for (int p = 0; p < workers; ++p) g.push_back(problem.gradient(w, p, t));
    rule.step(w, velocity, mean(g), t);
    run.steps.push_back(Ranks(static_cast<std::size_t>(workers), w));
  }
  run.end = Ranks(static_cast<std::size_t>(workers), w);
  return run;
}

}  // namespace slipstream::oracle
