// SPDX-License-Identifier: Apache-2.0
//
// Oracles: every strategy once more, in a few lines of double precision, written from its paper. They share no code
// with the library, so that an error would have to be made twice, in two ways, to pass unnoticed. This header has what
// they stand on: a small problem and the optimizer. They know nothing of buckets, wires, time or faults.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace slipstream::oracle {

using Vec = std::vector<double>;
using Ranks = std::vector<Vec>;  // one vector for each rank

// A job's weights: after every step, and at its end.
struct Course {
  std::vector<Ranks> steps;
  Ranks end;

  bool operator==(const Course&) const = default;
};

// Coupled, not quite linear, and different for every rank and step. The first weights are exact in single precision.
struct Problem {
  std::size_t size = 11;
  bool same_data = false;  // all ranks see rank 0's data

  Vec start() const {
    Vec w(size);
    for (std::size_t j = 0; j < size; ++j) w[j] = (static_cast<double>(5 * j % 16) - 7.5) / 8;
    return w;
  }

  Vec gradient(const Vec& w, int rank, std::int64_t t) const {
    const double r = same_data ? 0 : rank;
    Vec g(size);
    for (std::size_t j = 0; j < size; ++j) {
      const auto x = static_cast<double>(j);
      const double target = std::sin(1 + 3 * r + 7 * x);
      const double noise = 0.2 * std::sin(static_cast<double>(t) * (1.3 + x) + 2 * r);
      g[j] = (0.4 + 0.05 * x) * (w[j] - target) + 0.1 * std::sin(w[(j + 1) % size]) + noise;
    }
    return g;
  }
};

// How a gradient becomes a step; PyTorch's SGD. With another kind: see mover.h.
struct Rule {
  double lr = 0.05, lr_decay = 0;
  double momentum = 0, weight_decay = 0, clip_norm = 0;
  bool nesterov = false;
  std::string kind = "sgd";
  double eps = 1e-8;  // of adam and adamw

  double lr_at(std::int64_t t) const { return lr / (1 + lr_decay * static_cast<double>(t)); }

  Rule slower(double factor) const {
    Rule slow = *this;
    slow.lr = lr / factor;
    return slow;
  }

  void step(Vec& w, Vec& velocity, Vec g, std::int64_t t) const {
    double norm = 0;
    for (double x : g) norm += x * x;
    const double shorten = clip_norm > 0 ? std::min(1.0, clip_norm / (std::sqrt(norm) + 1e-6)) : 1.0;
    for (std::size_t j = 0; j < w.size(); ++j) {
      g[j] = shorten * g[j] + weight_decay * w[j];
      velocity[j] = momentum * velocity[j] + g[j];
      w[j] -= lr_at(t) * (nesterov ? g[j] + momentum * velocity[j] : velocity[j]);
    }
  }
};

inline Vec mean(const Ranks& all) {
  Vec m(all[0].size());
  for (std::size_t j = 0; j < m.size(); ++j) {
    for (const Vec& v : all) m[j] += v[j] / static_cast<double>(all.size());
  }
  return m;
}

}  // namespace slipstream::oracle
