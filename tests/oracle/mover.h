// SPDX-License-Identifier: Apache-2.0
//
// An optimizer in double precision, with its state: SGD by a Rule, or PyTorch's Adam and AdamW with its decay and rate.
#pragma once

#include "oracle/oracle.h"

namespace slipstream::oracle {

struct Mover {
  Rule rule;
  Vec first, second;  // velocity, or the two moments
  double count = 0;
  double workers = 1;  // whose mean the gradient stands for, alone: its variance is a P-th

  Mover(const Rule& by, std::size_t size, std::size_t stands_for = 1)
      : rule(by), first(size), second(size), workers(static_cast<double>(stands_for)) {}

  void step(Vec& w, const Vec& g, double lr) {
    if (rule.kind == "sgd") {
      Rule once = rule;
      once.lr = lr;
      once.lr_decay = 0;
      once.step(w, first, g, 0);
      return;
    }
    constexpr double kBeta1 = 0.9, kBeta2 = 0.999;
    const bool decoupled = rule.kind == "adamw";
    const double over = decoupled || rule.weight_decay == 0 ? workers : 1;  // no average takes from a common decay
    ++count;
    for (std::size_t j = 0; j < w.size(); ++j) {
      const double x = g[j] + (decoupled ? 0 : rule.weight_decay * w[j]);
      if (decoupled) w[j] *= 1 - lr * rule.weight_decay;
      first[j] = kBeta1 * first[j] + (1 - kBeta1) * x;
      second[j] = kBeta2 * second[j] + (1 - kBeta2) * x * x / over;
      const double mean = first[j] / (1 - std::pow(kBeta1, count));
      const double size = std::sqrt(second[j] / (1 - std::pow(kBeta2, count)));
      w[j] -= lr * mean / (size + rule.eps);
    }
  }
};

}  // namespace slipstream::oracle
