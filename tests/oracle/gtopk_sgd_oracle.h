// SPDX-License-Identifier: Apache-2.0
//
// gTop-k SGD: every worker sends of the k largest entries of what it owes, as top-k SGD does. In round `step` rank r merges
// the message of rank r + step into its own and keeps the k largest. All step with rank 0's message / P. What a merge
// drops, the merging worker owes; or, as published, a worker owes its own entries again unless they were applied.
#pragma once

#include <map>

#include "oracle/oracle.h"
#include "oracle/topk_sgd_oracle.h"

namespace slipstream::oracle {

inline Course gtopk_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps, std::size_t k,
                        bool published) {
  const auto count = static_cast<std::size_t>(workers);
  const Layer whole{0, problem.size, k};
  Vec w = problem.start();
  std::vector<Debtor> debtors(count, Debtor(rule, problem.size, count));
  std::vector<OwnClip> clips(count, OwnClip(rule.clip_norm, {whole}));
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    std::vector<std::map<std::size_t, double>> own(count);
    for (std::size_t p = 0; p < count; ++p) {
      const Vec sent = debtors[p].send(clips[p](problem.gradient(w, static_cast<int>(p), t)), t, {whole});
      for (std::size_t j = 0; j < sent.size(); ++j) {
        if (sent[j] != 0) own[p][j] = sent[j];
      }
    }
    auto merged = own;
    for (std::size_t step = 1; step < count; step *= 2) {
      for (std::size_t r = 0; r + step < count; r += 2 * step) {
        for (const auto& [j, x] : merged[r + step]) merged[r][j] += x;
        while (merged[r].size() > k) {
          const auto lighter = [](const auto& a, const auto& b) { return std::abs(a.second) <= std::abs(b.second); };
          auto lightest = merged[r].begin();
          for (auto e = merged[r].begin(); e != merged[r].end(); ++e) {
            if (lighter(*e, *lightest)) lightest = e;  // the last of equals
          }
          if (!published) debtors[r].owed[lightest->first] += lightest->second;
          merged[r].erase(lightest);
        }
      }
    }
    Vec all(problem.size);
    for (const auto& [j, x] : merged[0]) all[j] = x / workers;
    for (std::size_t p = 0; published && p < count; ++p) {
      for (const auto& [j, x] : own[p]) debtors[p].owed[j] += merged[0].contains(j) ? 0 : x;
    }
    move(w, rule, {all}, t);
    run.steps.emplace_back(count, w);
  }
  run.end = run.steps.back();
  return run;
}

}  // namespace slipstream::oracle
