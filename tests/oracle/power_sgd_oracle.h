// SPDX-License-Identifier: Apache-2.0
//
// PowerSGD of rank r for a problem whose elements from `offset` on are one matrix; all before it is sent as it is.
#pragma once

#include "oracle/oracle.h"

namespace slipstream::oracle {

struct Matrix {
  std::size_t offset, rows, columns;
};

// `b` holds r rows of `columns`: the factor to start from.
inline Course power_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps, const Matrix& m,
                        Ranks b) {
  const auto count = static_cast<std::size_t>(workers);
  const std::size_t r = b.size();
  Vec w = problem.start(), velocity(problem.size);
  Ranks owed(count, Vec(problem.size));
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    Ranks sent(count), a(r, Vec(m.rows));
    const auto at = [&](std::size_t i, std::size_t c) { return m.offset + i * m.columns + c; };
    for (std::size_t p = 0; p < count; ++p) {
      sent[p] = problem.gradient(w, static_cast<int>(p), t);
      for (std::size_t i = 0; i < m.rows; ++i) {
        for (std::size_t c = 0; c < m.columns; ++c) {
          owed[p][at(i, c)] += sent[p][at(i, c)];
          for (std::size_t j = 0; j < r; ++j) a[j][i] += owed[p][at(i, c)] * b[j][c];
        }
      }
    }
    for (std::size_t j = 0; j < r; ++j) {
      double norm = 0;
      for (std::size_t k = 0; k < j; ++k) {
        double along = 0;
        for (std::size_t i = 0; i < m.rows; ++i) along += a[j][i] * a[k][i];
        for (std::size_t i = 0; i < m.rows; ++i) a[j][i] -= along * a[k][i];
      }
      for (double x : a[j]) norm += x * x;
      for (double& x : a[j]) x /= std::sqrt(norm);
    }
    b.assign(r, Vec(m.columns));
    for (std::size_t p = 0; p < count; ++p) {
      for (std::size_t j = 0; j < r; ++j) {
        for (std::size_t i = 0; i < m.rows; ++i) {
          for (std::size_t c = 0; c < m.columns; ++c) b[j][c] += owed[p][at(i, c)] * a[j][i];
        }
      }
    }
    Vec g = mean(sent);
    for (std::size_t i = 0; i < m.rows; ++i) {
      for (std::size_t c = 0; c < m.columns; ++c) {
        g[at(i, c)] = 0;
        for (std::size_t j = 0; j < r; ++j) g[at(i, c)] += a[j][i] * b[j][c] / workers;
        for (std::size_t p = 0; p < count; ++p) owed[p][at(i, c)] -= g[at(i, c)];
      }
    }
    rule.step(w, velocity, g, t);
    run.steps.emplace_back(count, w);
  }
  run.end = run.steps.back();
  return run;
}

}  // namespace slipstream::oracle
