// SPDX-License-Identifier: Apache-2.0
//
// OSP in double precision: two stages on a server, with a split of the coordinates that may change from step to step.
#pragma once

#include <functional>
#include <string>

#include "oracle/mover.h"

namespace slipstream::oracle {

// split(t, j): is coordinate j synchronised in stage 2 (during the next computation) at step t?
inline Course osp(const Problem& problem, const Rule& rule, int workers, std::int64_t steps,
                  const std::function<bool(std::int64_t, std::size_t)>& split, const std::string& lgp) {
  const std::size_t d = problem.size;
  Vec W = problem.start();
  Mover server(rule, d);
  Ranks x(static_cast<std::size_t>(workers), W);
  std::vector<Mover> own(x.size(), Mover(rule, d, x.size()));  // Adam's moments of the workers' own gradients
  std::vector<bool> pending(d);                                // stage 2 of the last step …
  Vec pending_gradient(d);                                     // … and its mean gradient
  const auto update = [&](const Vec& g, const std::vector<bool>& where, std::int64_t t) {
    Vec w = W;
    Mover moved = server;
    moved.count = static_cast<double>(t);
    moved.step(w, g, rule.lr_at(t));
    for (std::size_t j = 0; j < d; ++j) {
      if (where[j]) W[j] = w[j], server.first[j] = moved.first[j], server.second[j] = moved.second[j];
    }
  };
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    Ranks g;
    for (int p = 0; p < workers; ++p) g.push_back(problem.gradient(x[static_cast<std::size_t>(p)], p, t));
    update(pending_gradient, pending, t - 1);
    std::vector<bool> first(d), second(d);
    for (std::size_t j = 0; j < d; ++j) (split(t, j) ? second : first)[j] = true;
    update(mean(g), first, t);
    for (std::size_t p = 0; p < x.size(); ++p) {
      Vec guess = W;
      if (lgp == "adam") {
        own[p].step(guess, g[p], rule.lr_at(t));
      } else if (lgp != "off") {
        Rule mirrored = rule;
        if (lgp != "momentum") mirrored.momentum = 0, mirrored.nesterov = false;
        Vec v = lgp == "momentum" ? server.first : Vec(d);
        mirrored.step(guess, v, g[p], t);
      }
      for (std::size_t j = 0; j < d; ++j) x[p][j] = second[j] ? guess[j] : W[j];
    }
    pending = second;
    pending_gradient = mean(g);
    run.steps.push_back(x);
  }
  update(pending_gradient, pending, steps - 1);
  run.end = Ranks(static_cast<std::size_t>(workers), W);
  return run;
}

}  // namespace slipstream::oracle
