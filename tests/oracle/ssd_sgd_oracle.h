// SPDX-License-Identifier: Apache-2.0
//
// SSD-SGD in double precision, after arXiv 2012.05396 and the presets of its local update.
#pragma once

#include <string>

#include "oracle/oracle.h"

namespace slipstream::oracle {

struct SsdSettings {
  std::int64_t period = 5, warmup = 0;
  bool overlapped = true, accumulate = false;
  std::string local = "glu";
  double local_lr = 1, local_momentum = 0;
};

struct SsdCourse : Course {
  std::vector<Vec> servers;    // W after every step
  std::vector<Vec> estimates;  // worker 0's estimate of the global gradient, at every adoption
};

inline SsdCourse ssd_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps,
                         const SsdSettings& how) {
  const auto P = static_cast<std::size_t>(workers);
  const std::size_t d = problem.size;
  Rule server = rule;
  if (how.accumulate) server.weight_decay = 0;  // the workers add it to their gradients
  double period_lr = 0;
  Vec W = problem.start(), V(d);
  Ranks x(P, W), base(P, W), pre(P, W), h(P, Vec(d)), v(P, Vec(d)), sum(P, Vec(d));  // by worker
  bool estimated = false;
  double rates = 0;
  const auto push_sum = [&] {
    Rule once = server;
    once.lr = period_lr;
    once.lr_decay = 0;
    once.step(W, V, mean(sum), 0);
  };
  SsdCourse run;
  for (std::int64_t t = 0; t < steps; ++t) {
    const double lr = rule.lr_at(t), wd = server.weight_decay, local = how.local_lr * lr;
    Ranks g;
    for (std::size_t p = 0; p < P; ++p) {
      g.push_back(problem.gradient(x[p], static_cast<int>(p), t));
      for (std::size_t j = 0; j < d && how.accumulate; ++j) g[p][j] += rule.weight_decay * x[p][j];
    }
    if (t < how.warmup) {
      server.step(W, V, mean(g), t);
      x = base = pre = Ranks(P, W);
    } else {
      const bool pulls = (t - how.warmup + 1) % how.period == 0;
      if ((t - how.warmup) % how.period == 0) period_lr = lr;
      for (std::size_t p = 0; p < P; ++p) {
        for (std::size_t j = 0; j < d; ++j) {
          double& w = base[p][j];
          sum[p][j] += lr / period_lr * g[p][j];
          double c = g[p][j];
          if (how.local == "glu" && estimated) c = 0.5 * g[p][j] + 0.5 * h[p][j];
          if (how.local == "glu-released") {
            c = 2 * g[p][j] + 0.5 * ((1 - local * wd) * pre[p][j] - w) / 8;
            pre[p][j] = w;
          }
          v[p][j] = how.local_momentum * v[p][j] + c + wd * w;
          w -= local * v[p][j];
        }
      }
      x = base;
      rates += lr;
      if (!how.accumulate) server.step(W, V, mean(g), t);
      if (how.accumulate && pulls) {
        push_sum();
        sum = Ranks(P, Vec(d));
      }
      if (pulls) {
        for (std::size_t p = 0; p < P && how.local == "glu"; ++p) {
          for (std::size_t j = 0; j < d; ++j) {
            h[p][j] = (1 - how.local_momentum) * (pre[p][j] - W[j]) / rates - wd * pre[p][j];
          }
          pre[p] = W;
        }
        estimated = true;
        rates = 0;
        base = Ranks(P, W);
        run.estimates.push_back(h[0]);
        if (!how.overlapped) x = base;
      }
    }
    run.steps.push_back(x);
    run.servers.push_back(W);
  }
  if (how.accumulate && (steps - how.warmup) % how.period != 0) push_sum();
  run.end = Ranks(P, W);
  return run;
}

}  // namespace slipstream::oracle
