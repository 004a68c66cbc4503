// SPDX-License-Identifier: Apache-2.0
//
// Streaming DiLoCo: workers train alone; every H steps, each fragment at its own time, the mean movement away from the
// shared model is taken, and del steps later the shared model makes a Nesterov (or plain momentum) step along it and
// every worker's fragment is mixed with the shared one.
#pragma once

#include "oracle/oracle.h"

namespace slipstream::oracle {

struct DilocoRule {
  std::int64_t H = 5, del = 0;
  std::size_t fragments = 1;
  double alpha = 0, eta = 0.7, mu = 0.9;
  bool nesterov = true;
};

inline Course diloco(const Problem& problem, const Rule& rule, int workers, std::int64_t steps, const DilocoRule& d) {
  const auto count = static_cast<std::size_t>(workers);
  Ranks x(count, problem.start()), inner(count, Vec(problem.size));
  Vec theta = problem.start(), v(problem.size), movement(problem.size);
  std::vector<std::int64_t> sent(d.fragments, -1);  // the step after which a fragment was sent; -1: none under way
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    for (std::size_t p = 0; p < count; ++p) {
      rule.step(x[p], inner[p], problem.gradient(x[p], static_cast<int>(p), t), t);
    }
    for (std::size_t f = 0; f < d.fragments; ++f) {
      const std::size_t begin = f * problem.size / d.fragments, end = (f + 1) * problem.size / d.fragments;
      const std::int64_t offset = static_cast<std::int64_t>(f) * d.H / static_cast<std::int64_t>(d.fragments);
      const auto merge = [&] {
        sent[f] = -1;
        for (std::size_t j = begin; j < end; ++j) {
          v[j] = d.mu * v[j] + movement[j];
          theta[j] -= d.eta * (d.nesterov ? movement[j] + d.mu * v[j] : v[j]);
          for (Vec& mine : x) mine[j] = d.alpha * mine[j] + (1 - d.alpha) * theta[j];
        }
      };
      if (sent[f] >= 0 && t == sent[f] + d.del) merge();
      if (t < offset || (t - offset) % d.H != d.H - 1) continue;
      for (std::size_t j = begin; j < end; ++j) movement[j] = theta[j] - mean(x)[j];
      sent[f] = t;
      if (d.del == 0) merge();
    }
    run.steps.push_back(x);
  }
  run.end = Ranks(count, mean(x));
  return run;
}

}  // namespace slipstream::oracle
