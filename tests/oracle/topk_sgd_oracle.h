// SPDX-License-Identifier: Apache-2.0
//
// Top-k SGD: every worker adds its gradient to what it owes, sends the k largest entries and forgets them; all step
// with the mean of what was sent. Corrected: what is owed collects the worker's velocity, whose sent entries are
// forgotten too.
#pragma once

#include <numeric>

#include "oracle/oracle.h"

namespace slipstream::oracle {

inline std::vector<std::size_t> largest(const Vec& v, std::size_t k) {
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return std::abs(v[a]) > std::abs(v[b]); });
  order.resize(k);
  return order;
}

inline Course topk_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps, std::size_t k,
                       bool corrected) {
  const auto count = static_cast<std::size_t>(workers);
  Vec w = problem.start(), velocity(problem.size);
  Ranks owed(count, Vec(problem.size)), u(count, Vec(problem.size));
  Rule plain = rule;
  plain.momentum = 0;
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    Ranks sent(count, Vec(problem.size));
    for (std::size_t p = 0; p < count; ++p) {
      const Vec g = problem.gradient(w, static_cast<int>(p), t);
      for (std::size_t j = 0; j < g.size(); ++j) {
        u[p][j] = corrected ? rule.momentum * u[p][j] + g[j] : g[j];
        owed[p][j] += u[p][j];
      }
      for (const std::size_t j : largest(owed[p], k)) {
        sent[p][j] = owed[p][j];
        owed[p][j] = u[p][j] = 0;
      }
    }
    (corrected ? plain : rule).step(w, velocity, mean(sent), t);
    run.steps.emplace_back(count, w);
  }
  run.end = run.steps.back();
  return run;
}

}  // namespace slipstream::oracle
