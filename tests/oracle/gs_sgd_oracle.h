// SPDX-License-Identifier: Apache-2.0
//
// gs-SGD and Sketched-SGD, which differ in who talks to whom only: every worker adds its velocity (or, folded, its
// gradient) to what it owes; of the coordinates that `find` picks from the workers' memories the k largest by exact
// mean are applied and forgotten, the velocity with them where it is masked. Without exact values the k picked ones are
// applied as estimated, and every worker owes that much less. Weights decay by themselves, as with momentum in the long
// run.
#pragma once

#include <functional>

#include "oracle/oracle.h"
#include "oracle/topk_sgd_oracle.h"

namespace slipstream::oracle {

struct Found {
  std::vector<std::size_t> coordinates;
  Vec estimates;  // of the mean, at all coordinates
};

struct Gs {
  std::size_t k = 0;
  bool exact = true, corrected = false, masking = true;
  std::function<Found(const Ranks& memories, std::int64_t t)> find;
};

inline Course gs_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps, const Gs& gs) {
  const auto count = static_cast<std::size_t>(workers);
  Vec w = problem.start();
  Ranks u(count, Vec(problem.size)), v(count, Vec(problem.size));
  const double fold = gs.corrected ? 1 : 1 / (1 - rule.momentum);
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    for (std::size_t p = 0; p < count; ++p) {
      const Vec g = problem.gradient(w, static_cast<int>(p), t);
      for (std::size_t j = 0; j < g.size(); ++j) {
        u[p][j] = gs.corrected ? rule.momentum * u[p][j] + g[j] : g[j];
        v[p][j] += u[p][j];
      }
    }
    const Found found = gs.find(v, t);
    Vec x(problem.size);
    for (const std::size_t j : found.coordinates) x[j] = gs.exact ? mean(v)[j] : found.estimates[j];
    for (double& weight : w) weight -= rule.lr_at(t) / (1 - rule.momentum) * rule.weight_decay * weight;
    for (const std::size_t j : largest(x, gs.k)) {
      w[j] -= rule.lr_at(t) * fold * x[j];
      for (std::size_t p = 0; p < count; ++p) {
        v[p][j] = gs.exact ? 0 : v[p][j] - x[j];
        if (gs.masking) u[p][j] = 0;
      }
    }
    run.steps.emplace_back(count, w);
  }
  run.end = run.steps.back();
  return run;
}

}  // namespace slipstream::oracle
