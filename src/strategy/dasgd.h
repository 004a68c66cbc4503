// SPDX-License-Identifier: Apache-2.0
//
// DaSGD: local SGD whose averages arrive late, so that nobody waits for them.
//
//   Q. Zhou, Y. Zhang, P. Li, X. Liu, J. Yang, R. Wang, R. Huang, "DaSGD: Squeezing SGD Parallelization Performance in
//   Distributed Training Using Delayed Averaging", arXiv 2006.00441; merge=additive: S. Shen et al., "Faster
//   Distributed Deep Net Training: Computation and Communication Decoupled SGD" (CoCoD-SGD), IJCAI 2019.
//
//   each step t:
//     (1)  in the warm-up:          w <- w - step(mean of all workers' g)     plain S-SGD
//     (2)  else:                    w <- w - step(g)                          own gradient, own optimizer state
//     (3)  del steps after a send:  A <- the sum, waiting for it where it is late; then
//            lerp:                  w <- xi w + (1 - xi) A / P
//            additive:              w <- (w - s) + A / P
//     (4)  every tau steps:         s <- w;  start A <- sum over workers of s
//
// With a codec all workers share an anchor z, and (4) sends what codec and error feedback make of w - z (SharedAnchor).
//
// Communicated per step and worker: 2 (P-1)/P × 4 bytes × parameters / tau on average, each way; twice that with
// state=average; a fraction of it with a codec.
//
// lerp takes back (1 - xi) of the del steps made since the snapshot: of every tau steps it keeps tau - (1 - xi) del.
// additive keeps all of them and leaves the workers apart by what they did in these steps.
//
// Deviations from the paper and its code: del may be measured (delay=auto) and may reach tau; a last average makes the
// workers equal; state and codec are additions. Like there, statistics of normalisation layers are not averaged here
// (Session does at the end), and the optimizer's state stays local unless asked otherwise.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "correction/anchor.h"
#include "schedule/delay_rule.h"
#include "schedule/delayed.h"
#include "schedule/warmup.h"
#include "strategy/delay_meter.h"
#include "strategy/shared_anchor.h"

namespace slipstream {

struct DaSgdOptions {
  std::optional<std::int64_t> period{};  // changes the result: tau; empty: measured
  std::optional<std::int64_t> delay{};   // del; empty: measured
  std::string merge = "additive";
  double mix = 0.25;  // xi
  std::string state = "keep";
  std::string codec = "dense";
  double density = 0.01;
  std::int64_t warmup_steps = 0;
  bool whole_period = false;  // cocod: the delay is the period, whatever that is

  // CoCoD-SGD: every average is merged when the next one starts.
  static DaSgdOptions cocod() { return {.period = 4, .whole_period = true}; }

  void describe(OptionSet& o);
  DelayRule rule() const { return {period, whole_period ? period : delay}; }
};

class DaSgd final : public Strategy {
 public:
  using Options = DaSgdOptions;
  explicit DaSgd(const Options& options);

  static StrategyInfo info();
  static StrategyInfo cocod_info();
  static double bytes_sent(const Options& options, const TrafficQuery& q);
  static bool follows_clock(const Options& options) { return options.rule().measures(); }

  void on_start(Step& s) override;
  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor& v) override;
  std::string news() override { return std::exchange(news_, {}); }

 private:
  void send(Step& s);
  void merge(Step& s);
  void choose(std::int64_t t);
  bool arrived() const { return shared_ ? shared_->done() : sum_.done(); }

  Options options_;
  Warmup warmup_;
  DelayRule rule_;
  Delayed when_;                        // counted from the end of the warm-up
  std::optional<Anchor> anchor_;        // codec=dense
  std::optional<SharedAnchor> shared_;  // any other codec
  std::optional<DelayMeter> meter_;
  bool alone_ = false;    // nobody to average with, and nobody asked for averages in so many words
  bool pending_ = false;  // an average is under way or has arrived, and is not merged yet
  std::string news_;
  std::array<std::int64_t, 3> told_{};  // what news_ last told: period, delay, and whether that is too short
  InFlight sum_;                        // of the anchor: declared after it
};

}  // namespace slipstream
