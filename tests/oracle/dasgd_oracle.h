// SPDX-License-Identifier: Apache-2.0
//
// DaSGD: every worker has a model and an optimizer; every tau steps a copy of all models is averaged, and del steps
// later the average is merged. With k > 0 a worker sends the k largest entries of what it owes against a shared model.
#pragma once

#include <iterator>
#include <map>
#include <numeric>

#include "oracle/oracle.h"

namespace slipstream::oracle {

struct DaRule {
  std::int64_t tau = 4, del = 1, warmup = 0;
  bool additive = true;
  double xi = 0.25;
  char state = 'k';                                // kept, scaled by xi, averaged
  std::size_t k = 0;                               // 0: whole models are averaged
  std::map<std::int64_t, std::int64_t> changes{};  // from a step on another del counts, for what is sent from then on
  std::map<std::int64_t, std::int64_t> periods{};  // from a step on another tau counts, from the last send on
};

inline Vec only_largest(const Vec& v, std::size_t k) {
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return std::abs(v[a]) > std::abs(v[b]); });
  Vec picked(v.size());
  for (std::size_t j = 0; j < k; ++j) picked[order[j]] = v[order[j]];
  return picked;
}

// a x + b y
inline Vec combined(double a, const Vec& x, double b, const Vec& y) {
  Vec z(x.size());
  for (std::size_t j = 0; j < x.size(); ++j) z[j] = a * x[j] + b * y[j];
  return z;
}

inline Course dasgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps, const DaRule& da) {
  const auto count = static_cast<std::size_t>(workers);
  Ranks w(count, problem.start()), velocity(count, Vec(problem.size)), snap = w, velocity_snap = velocity;
  Ranks owed = velocity, sent = velocity;
  Vec shared = problem.start();
  std::int64_t age = -1, del = da.del;  // of the average under way
  std::int64_t since = 0;               // steps since the last one was sent
  const auto at = [](const auto& changes, std::int64_t t, std::int64_t first) {
    const auto later = changes.upper_bound(t);
    return later == changes.begin() ? first : std::prev(later)->second;
  };
  Course run;
  const auto merge = [&] {
    for (std::size_t p = 0; p < count; ++p) {
      const Vec average = da.k > 0 ? combined(1, shared, 1, mean(sent)) : mean(snap);
      w[p] = da.additive ? combined(1, average, 1, combined(1, w[p], -1, snap[p]))
                         : combined(da.xi, w[p], 1 - da.xi, average);
      if (da.state == 's') velocity[p] = combined(da.xi, velocity[p], 0, velocity[p]);
      if (da.state == 'a') velocity[p] = combined(da.xi, velocity[p], 1 - da.xi, mean(velocity_snap));
    }
    shared = combined(1, shared, 1, mean(sent));
    age = -1;
  };
  for (std::int64_t t = 0; t < steps; ++t) {
    Ranks g;
    for (std::size_t p = 0; p < count; ++p) g.push_back(problem.gradient(w[p], static_cast<int>(p), t));
    for (std::size_t p = 0; p < count; ++p) rule.step(w[p], velocity[p], t < da.warmup ? mean(g) : g[p], t);
    if (t < da.warmup) shared = w[0];
    if (age >= 0 && ++age == del) merge();
    if (t >= da.warmup && ++since % at(da.periods, t, da.tau) == 0) {
      since = 0;
      snap = w;
      velocity_snap = velocity;
      for (std::size_t p = 0; p < count && da.k > 0; ++p) {
        owed[p] = combined(1, owed[p], 1, combined(1, w[p], -1, shared));
        sent[p] = only_largest(owed[p], da.k);
        owed[p] = combined(1, owed[p], -1, sent[p]);
      }
      age = 0;
      del = at(da.changes, t, da.del);
      if (del == 0) merge();
    }
    run.steps.push_back(w);
  }
  run.end = Ranks(count, mean(w));
  return run;
}

}  // namespace slipstream::oracle
