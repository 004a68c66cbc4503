// SPDX-License-Identifier: Apache-2.0
//
// gs-SGD and Sketched-SGD. Every worker owes lr / (1 - m) times its gradient. The workers' largest entries are added into
// a Count-Sketch; of the coordinates with the largest estimates, dealt in turn to P owners, each owner picks its largest
// sums, k in all. What was picked is applied: the share 1 - m^((a+1)/2) of what is owed, a: steps since the coordinate was
// applied last; Nesterov adds lr g times the share that stays. Small tensors are applied whole in every step. Weights
// decay by lr / (1 - m) wd. With adamw directions and decay are those of topk_sgd_oracle.h.
//
// The sketch is written down once more, in doubles, from the words at the head of codec/sketch_kernels.h.
#pragma once

#include <array>

#include "oracle/oracle.h"
#include "oracle/topk_sgd_oracle.h"

namespace slipstream::oracle {

// The n-th random number (from 1) of a stream that belongs to a seed.
inline std::uint64_t random_number(std::uint64_t seed, std::uint64_t stream, std::uint64_t n) {
  const auto mix = [](std::uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
  };
  const std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
  std::uint64_t key = mix(seed + golden) ^ stream;
  for (int further = 0; further < 2; ++further) key = mix(key) + golden;
  return mix(mix(key) + golden * n);
}

class DoubleSketch {
 public:
  DoubleSketch(std::size_t rows, std::size_t columns, std::uint64_t seed) : columns_(columns), seed_(seed) {
    table_.assign(rows, Vec(columns));
  }
  void add(std::size_t i, double x) {
    for (std::size_t row = 0; row < table_.size(); ++row) table_[row][place(row, i).first] += place(row, i).second * x;
  }
  double min_estimate(std::size_t i) const {
    double least = INFINITY, sign = 0;
    for (std::size_t row = 0; row < table_.size(); ++row) {
      const double said = table_[row][place(row, i).first] * place(row, i).second;
      if (row > 0 && said * sign <= 0) return 0;
      sign = said;
      least = std::min(least, std::abs(said));
    }
    return sign > 0 ? least : -least;
  }

 private:
  // Where coordinate i lies in a row, and with which sign.
  std::pair<std::size_t, double> place(std::size_t row, std::size_t i) const {
    using U = std::uint32_t;
    const std::uint64_t key = random_number(seed_, 1, row + 2);
    U x = static_cast<U>(random_number(seed_, 1, 1)) ^ static_cast<U>(i / 16);
    x = (x ^ x >> 16) * 0x85ebca6bU;
    x = (x ^ x >> 13) * 0xc2b2ae35U;
    x ^= x >> 16;
    x = (x ^ static_cast<U>(key)) * (static_cast<U>(key >> 32) | 1U);
    x = (x ^ x >> 15) * 0xc2b2ae35U;
    x ^= x >> 16;
    U word = x * 0x9e3779b1U;
    word ^= word >> 16;
    const std::size_t line = static_cast<std::size_t>(std::uint64_t{x} * (columns_ / 16) >> 32), lane = i % 16;
    return {16 * line + (lane ^ (word & 15U)), (word >> (16 + lane) & 1U) != 0 ? -1.0 : 1.0};
  }

  std::size_t columns_;
  std::uint64_t seed_;
  Ranks table_;
};

struct Gs {
  std::size_t k = 0, candidates = 0, local = 0;
  std::size_t rows = 3, columns = 16;  // columns 0: exact estimates
  std::vector<bool> small = {};        // by element: of a small tensor; none where empty
};

inline Course gs_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps, const Gs& gs) {
  const auto count = static_cast<std::size_t>(workers);
  const double m = memory_of(rule);
  std::vector<std::size_t> sketched;  // the element of each coordinate
  for (std::size_t j = 0; j < problem.size; ++j) {
    if (gs.small.empty() || !gs.small[j]) sketched.push_back(j);
  }
  Vec w = problem.start();
  Ranks owed(count, Vec(problem.size)), leaves = owed;
  Vec age(problem.size);
  std::vector<OwnClip> clips(count, OwnClip(rule.clip_norm, {{0, problem.size, gs.k}}));
  std::vector<Directions> directions(count, Directions(rule, problem.size, count));
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    DoubleSketch sketch(gs.rows, std::max<std::size_t>(16, gs.columns), static_cast<std::uint64_t>(t));
    Vec sums(sketched.size());  // of what is in the table
    for (double& a : age) ++a;
    for (std::size_t p = 0; p < count; ++p) {
      const Vec g = clips[p](problem.gradient(w, static_cast<int>(p), t)), direction = directions[p](g, t);
      for (std::size_t j = 0; j < problem.size; ++j) {
        owed[p][j] += direction[j];
        const double share = 1 - std::pow(m, (age[j] + 1) / 2.0);
        leaves[p][j] = share * owed[p][j] + (rule.nesterov ? (1 - share) * rule.lr_at(t) * g[j] : 0);
      }
      Vec v;
      for (const std::size_t j : sketched) v.push_back(owed[p][j]);
      for (const std::size_t i : largest(v, gs.local)) {
        sketch.add(i, v[i]);
        sums[i] += v[i];
      }
    }
    Vec estimates(sketched.size());
    for (std::size_t i = 0; i < estimates.size(); ++i)
      estimates[i] = gs.columns == 0 ? sums[i] : sketch.min_estimate(i);
    std::vector<std::size_t> chosen = largest(estimates, gs.candidates);
    std::sort(chosen.begin(), chosen.end());

    const Vec x = mean(leaves);
    std::vector<std::size_t> applied;
    for (std::size_t j = 0; j < problem.size; ++j) {
      if (!gs.small.empty() && gs.small[j]) applied.push_back(j);
    }
    for (std::size_t owner = 0; owner < count; ++owner) {
      Vec share;
      for (std::size_t n = owner; n < chosen.size(); n += count) share.push_back(x[sketched[chosen[n]]]);
      const std::size_t picks = gs.k / count + (owner < gs.k % count ? 1 : 0);
      for (const std::size_t n : largest(share, picks)) applied.push_back(sketched[chosen[n * count + owner]]);
    }
    for (double& weight : w) weight -= decay_at(rule, t) * weight;
    for (const std::size_t j : applied) {
      w[j] -= x[j];
      for (std::size_t p = 0; p < count; ++p) owed[p][j] -= leaves[p][j];
      age[j] = 0;
    }
    run.steps.emplace_back(count, w);
  }
  run.end = run.steps.back();
  return run;
}

}  // namespace slipstream::oracle
