// SPDX-License-Identifier: Apache-2.0
//
// DaSGD: local SGD whose averages arrive late, so that nobody waits for them. See cards/dasgd.md, and cards/cocod.md
// for CoCoD-SGD, the additive merge with the largest delay.
//
// With a codec all workers share an anchor z, and (4) sends what codec and error feedback make of w - z (SharedAnchor).
// At most one average is under way: delay <= period.
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
