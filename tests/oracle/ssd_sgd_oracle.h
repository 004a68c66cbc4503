// SPDX-License-Identifier: Apache-2.0
//
// SSD-SGD in double precision, after arXiv 2012.05396: the local update mirrors the servers' rule, and mixes some of the
// global gradient, as the servers' weights show it, into its own.
#pragma once

#include "oracle/mover.h"

namespace slipstream::oracle {

struct SsdSettings {
  std::int64_t period = 5, warmup = 0;
  bool overlapped = true, accumulate = false;
  double mix = 0.1;  // 0: local=plain
  double local_lr = 1;
};

struct SsdCourse : Course {
  std::vector<Vec> servers;    // W after every step
  std::vector<Vec> estimates;  // worker 0's estimate of the global gradient, at every adoption
};

inline SsdCourse ssd_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps,
                         const SsdSettings& how) {
  const auto P = static_cast<std::size_t>(workers);
  const std::size_t d = problem.size;
  const bool mixes = how.mix > 0 && P > 1 && rule.kind == "sgd";
  Rule served = rule;
  if (how.accumulate) served.weight_decay = 0;  // the workers add it to what they push
  Mover server(served, d);
  std::vector<Mover> local(P, Mover(rule, d, P));
  Vec W = problem.start(), pre = W, h(d);
  Ranks x(P, W), base(P, W), sum(P, Vec(d));  // by worker
  bool estimated = false;
  double rates = 0, period_lr = 0;
  SsdCourse run;
  for (std::int64_t t = 0; t < steps; ++t) {
    const double lr = rule.lr_at(t);
    Ranks g, pushed;
    for (std::size_t p = 0; p < P; ++p) {
      g.push_back(problem.gradient(x[p], static_cast<int>(p), t));
      pushed.push_back(g[p]);
      for (std::size_t j = 0; j < d && how.accumulate; ++j) pushed[p][j] += rule.weight_decay * x[p][j];
    }
    if (t < how.warmup) {
      server.step(W, mean(pushed), lr);
      for (std::size_t p = 0; p < P; ++p) {
        if (rule.kind == "sgd") {
          local[p].first = server.first;  // it is what W's movement shows
        } else {
          local[p].step(base[p], g[p], lr);
        }
      }
      pre = W;
      x = base = Ranks(P, W);
    } else {
      const bool pulls = (t - how.warmup + 1) % how.period == 0;
      if ((t - how.warmup) % how.period == 0) {
        period_lr = lr;
        sum = Ranks(P, Vec(d));
      }
      for (std::size_t p = 0; p < P; ++p) {
        Vec c = g[p];
        for (std::size_t j = 0; j < d; ++j) {
          sum[p][j] += lr / period_lr * pushed[p][j];
          if (mixes && estimated) c[j] = (1 - how.mix) * g[p][j] + how.mix * h[j];
        }
        local[p].step(base[p], c, how.local_lr * lr);
      }
      x = base;
      rates += lr;
      if (!how.accumulate) server.step(W, mean(pushed), lr);
      if (how.accumulate && pulls) server.step(W, mean(sum), period_lr);
      if (pulls) {
        for (std::size_t j = 0; j < d; ++j) {
          h[j] = (1 - rule.momentum) * (pre[j] - W[j]) / rates - rule.weight_decay * pre[j];
        }
        pre = W;
        estimated = true;
        rates = 0;
        base = Ranks(P, W);  // overlapped: it counts from the end of the next step
        run.estimates.push_back(h);
        if (!how.overlapped) x = base;
      }
    }
    run.steps.push_back(x);
    run.servers.push_back(W);
  }
  if (how.accumulate && steps > how.warmup && (steps - how.warmup) % how.period != 0) {
    server.step(W, mean(sum), period_lr);
  }
  run.end = Ranks(P, W);
  return run;
}

}  // namespace slipstream::oracle
