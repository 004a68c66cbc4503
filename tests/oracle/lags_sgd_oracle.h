// SPDX-License-Identifier: Apache-2.0
//
// LAGS-SGD: top-k SGD with a selection and a memory for every layer. With lr_inside the memory holds weights, not
// gradients.
#pragma once

#include "oracle/oracle.h"
#include "oracle/topk_sgd_oracle.h"

namespace slipstream::oracle {

struct Layer {
  std::size_t offset, count, k;
};

struct LagsCourse : Course {
  Ranks owed;  // at the end
};

inline LagsCourse lags_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps,
                           const std::vector<Layer>& layers, bool lr_inside = false) {
  const auto count = static_cast<std::size_t>(workers);
  Vec w = problem.start(), velocity(problem.size);
  LagsCourse run;
  run.owed.assign(count, Vec(problem.size));
  for (std::int64_t t = 0; t < steps; ++t) {
    const double unit = lr_inside ? rule.lr_at(t) : 1;
    Ranks sent(count, Vec(problem.size));
    for (std::size_t p = 0; p < count; ++p) {
      const Vec g = problem.gradient(w, static_cast<int>(p), t);
      for (std::size_t j = 0; j < g.size(); ++j) run.owed[p][j] += unit * g[j];
      for (const Layer& layer : layers) {
        const auto begin = run.owed[p].begin() + static_cast<std::ptrdiff_t>(layer.offset);
        for (const std::size_t j : largest(Vec(begin, begin + static_cast<std::ptrdiff_t>(layer.count)), layer.k)) {
          sent[p][layer.offset + j] = run.owed[p][layer.offset + j] / unit;
          run.owed[p][layer.offset + j] = 0;
        }
      }
    }
    rule.step(w, velocity, mean(sent), t);
    run.steps.emplace_back(count, w);
  }
  run.end = run.steps.back();
  return run;
}

}  // namespace slipstream::oracle
