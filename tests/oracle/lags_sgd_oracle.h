// SPDX-License-Identifier: Apache-2.0
//
// LAGS-SGD: top-k SGD with a selection for every group of layers. Gradients are clipped layer by layer.
#pragma once

#include "oracle/oracle.h"
#include "oracle/topk_sgd_oracle.h"

namespace slipstream::oracle {

// `plan(t)`: the groups of step t.
template <typename Plan>
Course lags_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps,
                const std::vector<Layer>& layers, const Plan& plan) {
  const auto count = static_cast<std::size_t>(workers);
  Vec w = problem.start();
  std::vector<Debtor> debtors(count, Debtor(rule, problem.size, count));
  std::vector<OwnClip> clips(count, OwnClip(rule.clip_norm, layers));
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    Ranks sent;
    for (std::size_t p = 0; p < count; ++p) {
      sent.push_back(debtors[p].send(clips[p](problem.gradient(w, static_cast<int>(p), t)), t, plan(t)));
    }
    move(w, rule, sent, t);
    run.steps.emplace_back(count, w);
  }
  run.end = run.steps.back();
  return run;
}

}  // namespace slipstream::oracle
