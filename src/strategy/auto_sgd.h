// SPDX-License-Identifier: Apache-2.0
//
// Auto: dense steps first, then the strategy that is planned to be faster on this link, if it really is. See
// cards/auto.md.
//
// It is a strategy around another one, which it hands the buckets that one wants; its own are single tensors, since it
// measures them. An inner strategy that sends directions gets an optimizer of its own. All decisions are made of figures
// that all ranks hold, at steps that follow from the options alone; the plan is rank 0's.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "correction/own_clip.h"
#include "strategy/chooser.h"
#include "strategy/step_meter.h"

namespace slipstream {

struct AutoOptions {
  std::string may = "equal";
  std::int64_t measure_steps = 12;
  std::int64_t try_steps = 32;
  std::int64_t watch_steps = 100;

  void describe(OptionSet& o);
};

class AutoSgd final : public Strategy {
 public:
  using Options = AutoOptions;
  explicit AutoSgd(const Options& options) : options_(options) {}

  static double bytes_sent(const Options& options, const TrafficQuery& q);
  static bool follows_clock(const Options&) { return true; }

  BucketRule buckets() const override { return BucketRule::per_slot(); }
  bool clips_own() const override { return false; }
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor& v) override;
  std::span<float> owed() override { return inner_ ? inner_->owed() : std::span<float>(); }
  std::string news() override;

 private:
  enum class Phase : std::int64_t { kMeasuring, kTrying, kWatching };

  void start(const std::string& strategy, std::int64_t t);
  void drain(Step& s);
  Step view(Step& s);
  void hand_over(Step& s, const Bucket& bucket);
  void decide(Step& s);
  void choose(Step& s);
  void enter(Phase phase, std::int64_t t);
  std::int64_t length() const;
  double agreed_step_s(Step& s) const;
  void tell(const std::string& text) { news_ += (news_.empty() ? "" : "; ") + text; }

  Options options_;
  std::optional<Step> job_;  // what a strategy is started with
  Phase phase_ = Phase::kMeasuring;
  std::int64_t phase_began_ = 0;
  double dense_s_ = 0;     // a step of the first ones
  double accepted_s_ = 0;  // a step of what is at work, when it was accepted
  std::string chosen_;
  std::string news_;

  std::int64_t inner_began_ = 0;
  std::unique_ptr<Optimizer> directions_;  // of an inner strategy that does not step
  std::unique_ptr<Strategy> inner_;        // after what it uses
  std::vector<Bucket> plan_;               // its buckets
  std::size_t next_ = 0;                   // of plan_, this step
  std::optional<OwnClip> clip_;
  std::vector<Bucket> held_;

  std::optional<StepMeter> meter_;
  std::vector<double> step_s_;  // of this phase
  double step_ended_ = -1, updated_s_ = 0;
};

}  // namespace slipstream
