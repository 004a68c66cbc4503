// SPDX-License-Identifier: Apache-2.0
//
// Top-k SGD: every worker owes lr / (1 - m) times its gradient. It sends of the k largest entries of what it owes the
// share 1 - m^((a+1)/2), a: steps since the entry was sent last (of a layer that is sent whole always 1 - m); Nesterov adds lr g
// times the share that stays. Weights decay by lr / (1 - m) wd, and move by the mean of what was sent.
//
// With adamw a worker owes lr g / (sqrt(v / P) + eps), v the mean of its own squared gradients; m is beta1, and weights
// decay by lr wd.
//
// Without momentum a layer that is sent whole gives its gradient and a tenth of what it owed before.
#pragma once

#include <numeric>

#include "oracle/oracle.h"

namespace slipstream::oracle {

inline std::vector<std::size_t> largest(const Vec& v, std::size_t k) {
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return std::abs(v[a]) > std::abs(v[b]); });
  order.resize(k);
  return order;
}

struct Layer {
  std::size_t offset, count, k;
};

inline double memory_of(const Rule& rule) { return rule.kind == "sgd" ? rule.momentum : 0.9; }

// What of a weight decays in a step.
inline double decay_at(const Rule& rule, std::int64_t t) {
  return rule.lr_at(t) * rule.weight_decay / (rule.kind == "sgd" ? 1 - rule.momentum : 1);
}

// What one of `workers` owes for a gradient.
class Directions {
 public:
  Directions(const Rule& rule, std::size_t size, std::size_t workers)
      : rule_(rule), squares_(size), workers_(static_cast<double>(workers)) {}

  Vec operator()(Vec g, std::int64_t t) {
    constexpr double kBeta2 = 0.999;
    const double lr = rule_.lr_at(t), seen = 1 - std::pow(kBeta2, static_cast<double>(t + 1));
    for (std::size_t j = 0; j < g.size(); ++j) {
      squares_[j] = kBeta2 * squares_[j] + (1 - kBeta2) * g[j] * g[j];
      g[j] *=
          rule_.kind == "sgd" ? lr / (1 - rule_.momentum) : lr / (std::sqrt(squares_[j] / seen / workers_) + rule_.eps);
    }
    return g;
  }

 private:
  Rule rule_;
  Vec squares_;
  double workers_;
};

// One worker's memory, for any number of layers with a selection each.
struct Debtor {
  Debtor(const Rule& rule, std::size_t size, std::size_t workers)
      : rule(rule), directions(rule, size, workers), owed(size), age(size) {}

  Vec send(const Vec& g, std::int64_t t, const std::vector<Layer>& layers) {
    const double m = memory_of(rule), lr = rule.lr_at(t);
    const Vec direction = directions(g, t);
    for (std::size_t j = 0; j < g.size(); ++j) {
      owed[j] += direction[j];
      ++age[j];
    }
    Vec sent(g.size());
    for (const Layer& layer : layers) {
      const auto begin = owed.begin() + static_cast<std::ptrdiff_t>(layer.offset);
      for (const std::size_t i : largest(Vec(begin, begin + static_cast<std::ptrdiff_t>(layer.count)), layer.k)) {
        const std::size_t j = layer.offset + i;
        const bool whole = layer.k == layer.count;
        const double share = 1 - std::pow(m, whole ? 1 : (age[j] + 1) / 2);
        sent[j] = share * owed[j] + (rule.nesterov ? (1 - share) * lr * g[j] : 0);
        if (m == 0 && whole) sent[j] = direction[j] + 0.1 * (owed[j] - direction[j]);
        owed[j] -= sent[j];
        age[j] = 0;
      }
    }
    return sent;
  }

  Rule rule;
  Directions directions;
  Vec owed, age;
};

inline void move(Vec& w, const Rule& rule, const Ranks& sent, std::int64_t t) {
  const Vec s = mean(sent);
  for (std::size_t j = 0; j < w.size(); ++j) {
    w[j] = (1 - decay_at(rule, t)) * w[j] - s[j];
  }
}

// Clipping by layers, each worker its own: the whole gradient in the first step, then every layer to its usual share.
class OwnClip {
 public:
  OwnClip(double limit, std::vector<Layer> layers)
      : limit_(limit), layers_(std::move(layers)), usual_(layers_.size()) {}

  Vec operator()(Vec g) {
    if (limit_ <= 0) return g;
    Vec squares;
    for (const Layer& layer : layers_) squares.push_back(square(g, layer));
    const double all = std::accumulate(usual_.begin(), usual_.end(), 0.0);
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const double norm = std::sqrt(first_ ? std::accumulate(squares.begin(), squares.end(), 0.0) : squares[l]);
      const double limit = first_ ? limit_ : limit_ * std::sqrt(usual_[l] / all);
      for (std::size_t j = 0; j < layers_[l].count; ++j)
        g[layers_[l].offset + j] *= std::min(1.0, limit / (norm + 1e-6));
    }
    for (std::size_t l = 0; l < layers_.size(); ++l)
      usual_[l] = first_ ? squares[l] : 0.9 * usual_[l] + 0.1 * squares[l];
    first_ = false;
    return g;
  }

 private:
  static double square(const Vec& g, const Layer& layer) {
    double sum = 0;
    for (std::size_t j = 0; j < layer.count; ++j) sum += g[layer.offset + j] * g[layer.offset + j];
    return sum;
  }

  double limit_;
  std::vector<Layer> layers_;
  Vec usual_;
  bool first_ = true;
};

inline Course topk_sgd(const Problem& problem, const Rule& rule, int workers, std::int64_t steps, std::size_t k) {
  const auto count = static_cast<std::size_t>(workers);
  const Layer whole{0, problem.size, k};
  Vec w = problem.start();
  std::vector<Debtor> debtors(count, Debtor(rule, problem.size, count));
  std::vector<OwnClip> clips(count, OwnClip(rule.clip_norm, {whole}));
  Course run;
  for (std::int64_t t = 0; t < steps; ++t) {
    Ranks sent;
    for (std::size_t p = 0; p < count; ++p) {
      sent.push_back(debtors[p].send(clips[p](problem.gradient(w, static_cast<int>(p), t)), t, {whole}));
    }
    move(w, rule, sent, t);
    run.steps.emplace_back(count, w);
  }
  run.end = run.steps.back();
  return run;
}

}  // namespace slipstream::oracle
