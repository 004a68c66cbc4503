// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous SGD, with or without a bound on staleness, and the round-robin form, in double precision. A wire that
// takes no time leaves one order of events: that of the workers' computing times. Every push is an update of its own,
// made with a P-th of the learning rate: P of them go as far as one synchronous step.
#pragma once

#include "oracle/oracle.h"

namespace slipstream::oracle {

// Worker p computes seconds[p] for each gradient. Afterwards it goes on once everybody has made all but `staleness` of
// as many steps.
inline Course asynchronous_sgd(const Problem& problem, const Rule& rule, const std::vector<double>& seconds,
                               std::int64_t steps, std::int64_t staleness) {
  const std::size_t P = seconds.size();
  const Rule once = rule.slower(static_cast<double>(P));
  Vec W = problem.start(), V(problem.size);
  Ranks x(P, W);
  Vec done_at = seconds;  // when its gradient is ready
  std::vector<std::int64_t> clock(P);
  std::vector<bool> blocked(P);
  Course run;
  run.steps.assign(static_cast<std::size_t>(steps), Ranks(P));
  for (std::int64_t pushes = 0; pushes < steps * static_cast<std::int64_t>(P); ++pushes) {
    std::size_t next = P;
    for (std::size_t p = 0; p < P; ++p) {
      if (!blocked[p] && clock[p] < steps && (next == P || done_at[p] < done_at[next])) next = p;
    }
    const double now = done_at[next];
    const Vec g = problem.gradient(x[next], static_cast<int>(next), clock[next]);
    once.step(W, V, g, clock[next]++);
    blocked[next] = true;
    const std::int64_t slowest = *std::min_element(clock.begin(), clock.end());
    for (std::size_t p = 0; p < P; ++p) {
      if (!blocked[p] || slowest < clock[p] - staleness) continue;
      blocked[p] = false;
      x[p] = W;
      run.steps[static_cast<std::size_t>(clock[p] - 1)][p] = W;
      done_at[p] = now + seconds[p];
    }
  }
  run.end = Ranks(P, W);
  return run;
}

// Worker after worker, each with the weights it got a cycle ago.
inline Course round_robin_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps) {
  const Rule once = rule.slower(workers);
  Vec W = problem.start(), V(problem.size);
  Ranks x(static_cast<std::size_t>(workers), W);
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    for (int q = 0; q < workers; ++q) {
      once.step(W, V, problem.gradient(x[static_cast<std::size_t>(q)], q, t), t);
      x[static_cast<std::size_t>(q)] = W;
    }
    run.steps.push_back(x);
  }
  run.end = Ranks(static_cast<std::size_t>(workers), W);
  return run;
}

}  // namespace slipstream::oracle
