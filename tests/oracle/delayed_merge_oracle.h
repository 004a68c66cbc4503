// SPDX-License-Identifier: Apache-2.0
//
// Local SGD whose average arrives one step late and is merged by addition: what SSD-SGD and OSP come to without
// momentum.
#pragma once

#include "oracle/oracle.h"

namespace slipstream::oracle {

inline Course local_sgd_with_delayed_merge(const Problem& problem, const Rule& rule, int workers, std::int64_t steps,
                                           std::int64_t tau) {
  Ranks w(static_cast<std::size_t>(workers), problem.start()), snapshot;
  Vec average;
  Course course;
  for (std::int64_t t = 0; t < steps; ++t) {
    for (int p = 0; p < workers; ++p) {
      Vec& mine = w[static_cast<std::size_t>(p)];
      const Vec g = problem.gradient(mine, p, t);
      for (std::size_t j = 0; j < mine.size(); ++j) mine[j] -= rule.lr_at(t) * g[j];
    }
    if (!average.empty()) {
      for (std::size_t p = 0; p < w.size(); ++p) {
        for (std::size_t j = 0; j < average.size(); ++j) w[p][j] = average[j] + (w[p][j] - snapshot[p][j]);
      }
      average.clear();
    }
    if ((t + 1) % tau == 0) {
      snapshot = w;
      average = mean(w);
    }
    course.steps.push_back(w);
  }
  return course;
}

// The mean gradients of a run, step by step, taken at the weights its workers had.
inline std::vector<Vec> mean_gradients(const Problem& problem, const Course& course, int workers) {
  std::vector<Vec> means;
  Ranks at(static_cast<std::size_t>(workers), problem.start());
  for (std::size_t t = 0; t < course.steps.size(); ++t) {
    Ranks g;
    for (int p = 0; p < workers; ++p) {
      g.push_back(problem.gradient(at[static_cast<std::size_t>(p)], p, static_cast<std::int64_t>(t)));
    }
    means.push_back(mean(g));
    at = course.steps[t];
  }
  return means;
}

// W_0 less every gradient of the run, once: where plain SGD must have ended.
inline Vec sum_of_gradients(const Problem& problem, const Rule& rule, const Course& course, int workers) {
  Vec w = problem.start();
  const auto means = mean_gradients(problem, course, workers);
  for (std::size_t t = 0; t < means.size(); ++t) {
    for (std::size_t j = 0; j < w.size(); ++j) w[j] -= rule.lr_at(static_cast<std::int64_t>(t)) * means[t][j];
  }
  return w;
}

}  // namespace slipstream::oracle
