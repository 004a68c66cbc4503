// SPDX-License-Identifier: Apache-2.0
//
// DiLoCo and its kin: workers train alone from a shared point; what they moved is averaged and used as the gradient of
// an outer optimizer, which moves the shared point. Streaming DiLoCo does so one fragment of the model at a time, and
// goes on training while a fragment is on its way.
//
//   A. Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", arXiv 2311.08105;
//   A. Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv 2501.18512;
//   J. Wang, H. Liang, G. Joshi, "Overlap Local-SGD", ICASSP 2020, arXiv 2002.09539.
//
//   each step, with theta the shared point (equal on all workers) and v its velocity:
//     (1)  x <- x - step(g)                                       inner step, own gradient and optimizer state
//   and for each fragment, every H steps, at an offset of its own:
//     (2)  d <- theta - x;  start D <- sum over workers of d
//   del steps later:
//     (3)  v <- mu v + D / P;  theta <- theta - eta (D / P + mu v)   outer Nesterov step
//     (4)  x <- alpha x + (1 - alpha) theta
//
//   diloco          one fragment, del = 0, alpha = 0: all workers restart from theta
//   overlap-local   one fragment, del = H, eta = 1, plain momentum instead of Nesterov
//   dasgd (lerp)    one fragment, eta = 1, mu = 0, alpha = xi
//
// Communicated per step and worker: 2 (P-1)/P × 4 bytes × parameters / H on average, each way; with F fragments in F
// pieces spread over the period. Deviations: fragments are equal contiguous parts of the flat model, which may cut a
// layer, instead of groups of transformer blocks; numbers travel as fp32; del may reach H, also where fragments
// overlap.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <vector>

#include "schedule/delayed.h"

namespace slipstream {

struct DilocoOptions {
  enum class Row { kDiloco, kStreaming, kOverlapLocal };  // which of them this is, and so what can be set
  Row row = Row::kDiloco;
  std::int64_t period = 50;  // changes the result: H
  std::int64_t fragments = 1;
  std::int64_t delay = 0;       // del; of overlap-local: the period
  double mix = 0;               // alpha
  double outer_lr = 0.7;        // eta
  double outer_momentum = 0.9;  // mu

  static DilocoOptions streaming() { return {.row = Row::kStreaming, .fragments = 4, .delay = 1, .mix = 0.5}; }
  static DilocoOptions overlap_local() {
    return {.row = Row::kOverlapLocal, .period = 4, .mix = 0.4, .outer_lr = 1, .outer_momentum = 0.7};
  }

  void describe(OptionSet& o);
  std::int64_t del() const { return row == Row::kOverlapLocal ? period : delay; }
  bool nesterov() const { return row != Row::kOverlapLocal && outer_momentum > 0; }
};

class Diloco final : public Strategy {
 public:
  using Options = DilocoOptions;
  explicit Diloco(const Options& options);

  static StrategyInfo info();
  static StrategyInfo streaming_info();
  static StrategyInfo overlap_local_info();
  static double bytes_sent(const Options& options, const TrafficQuery& q);

  void on_start(Step& s) override;
  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor& v) override;

 private:
  struct Fragment {
    Bucket part;  // of the flat model
    Delayed when;
    bool pending = false;  // D is under way or has arrived, and is not merged yet
    InFlight sum;
  };

  static std::vector<Fragment> cut(const Options& options, std::size_t count);
  void send(Step& s, Fragment& f);
  void merge(Step& s, Fragment& f);

  Options options_;
  std::vector<float> theta_, velocity_, delta_;
  std::vector<Fragment> fragments_;  // last: its sums use delta_
};

}  // namespace slipstream
