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

#include <optional>
#include <string>
#include <utility>

#include "correction/anchor.h"
#include "schedule/delayed.h"
#include "schedule/warmup.h"
#include "strategy/delay_meter.h"
#include "strategy/shared_anchor.h"

namespace slipstream {

struct DaSgdOptions {
  std::int64_t period = 4;            // changes the result: tau
  std::optional<std::int64_t> delay;  // del; empty: measured
  std::string merge = "additive";
  double mix = 0.25;  // xi
  std::string state = "keep";
  std::string codec = "dense";
  double density = 0.01;
  std::int64_t warmup_steps = 0;

  void describe(OptionSet& o);
};

class DaSgd : public Strategy {
 public:
  using Options = DaSgdOptions;
  explicit DaSgd(const Options& options);

  static double bytes_sent(const Options& options, const TrafficQuery& q);
  static bool follows_clock(const Options& options) { return !options.delay; }

  void on_start(Step& s) override;
  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor& v) override;
  std::string news() override { return std::exchange(news_, {}); }

 private:
  void send(Step& s);
  void merge(Step& s);
  void choose_delay(Step& s);

  Options options_;
  Warmup warmup_;
  Delayed when_;                        // counted from the end of the warm-up
  std::optional<Anchor> anchor_;        // codec=dense
  std::optional<SharedAnchor> shared_;  // any other codec
  std::optional<DelayMeter> meter_;     // delay=auto
  bool pending_ = false;                // an average is under way or has arrived, and is not merged yet
  std::string news_;
  std::int64_t told_ = 0;  // what news_ last told: the delay, or period + 1 where that is too short
  InFlight sum_;           // of the anchor: declared after it
};

// CoCoD-SGD: the additive merge with the largest delay. Every average is merged when the next one starts.
struct CocodOptions {
  std::int64_t period = 4;  // changes the result
  std::int64_t warmup_steps = 0;

  void describe(OptionSet& o);
};

class Cocod final : public DaSgd {
 public:
  using Options = CocodOptions;
  explicit Cocod(const Options& options) : DaSgd(as_dasgd(options)) {}

  static double bytes_sent(const Options& options, const TrafficQuery& q) {
    return DaSgd::bytes_sent(as_dasgd(options), q);
  }
  static bool follows_clock(const Options&) { return false; }

 private:
  static DaSgdOptions as_dasgd(const Options& options) {
    return {
        .period = options.period, .delay = options.period, .merge = "additive", .warmup_steps = options.warmup_steps};
  }
};

}  // namespace slipstream
