// SPDX-License-Identifier: Apache-2.0
#include "strategy/auto_sgd.h"

#include <fmt/format.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "base/vec.h"
#include "base/visit_real.h"
#include "optim/own_step.h"
#include "strategy/sync_sgd.h"
#include "topology/agree.h"
#include "topology/gather_text.h"

namespace slipstream {
namespace {

constexpr const char* kDense = "ssgd";
constexpr std::int64_t kSkip = 4;         // steps of a job that are too irregular to count
constexpr double kRealGain = 0.97;        // of a dense step: a strategy that takes longer is not worth it
constexpr double kNoticeable = 1.3;       // change of a step's time after which all is measured again
constexpr double kHiccups = 0.125;        // share of steps, at either end, that do not count
constexpr std::size_t kLongestName = 64;  // of a strategy with its options

// What the second moments of a mean of gradients say of a worker's own: noise, of which a mean over P has a P-th.
struct MomentCopy final : StateVisitor {
  std::vector<float> moments;
  std::int64_t steps = 0;
  float factor = 1;
  bool writes = false;

  void floats(std::string_view name, std::span<float> values) override {
    if (name != "moment2") return;
    if (!writes) {
      moments.assign(values.begin(), values.end());
      vec::scale(std::span(moments), factor);
    } else if (moments.size() == values.size()) {
      vec::copy(values, std::span<const float>(moments));
    }
  }
  void integer(std::string_view name, std::int64_t& value) override {
    if (name == "steps") (writes ? value : steps) = writes ? steps : value;
  }
};

// Gives names of its own to what an inner part visits.
class Below final : public StateVisitor {
 public:
  Below(StateVisitor& v, std::string prefix) : v_(v), prefix_(std::move(prefix)) {}
  void floats(std::string_view name, std::span<float> values) override {
    v_.floats(prefix_ + std::string(name), values);
  }
  void integer(std::string_view name, std::int64_t& value) override { v_.integer(prefix_ + std::string(name), value); }

 private:
  StateVisitor& v_;
  std::string prefix_;
};

void visit_text(StateVisitor& v, std::string_view name, std::string& text) {
  std::array<std::int64_t, kLongestName / sizeof(std::int64_t)> words{};
  std::memcpy(words.data(), text.data(), std::min(text.size(), kLongestName));
  for (std::size_t i = 0; i < words.size(); ++i) v.integer(fmt::format("{} {}", name, i), words[i]);
  std::array<char, kLongestName + 1> all{};
  std::memcpy(all.data(), words.data(), kLongestName);
  text = all.data();
}

// The mean without the share `cut` of the values at either end. A median would take one of two values where a worker
// waits in every other step, as with lags over a long way, and call that a change.
double trimmed_mean(std::vector<double> values, double cut) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto dropped = static_cast<std::ptrdiff_t>(cut * static_cast<double>(values.size()));
  const double sum = std::accumulate(values.begin() + dropped, values.end() - dropped, 0.0);
  return sum / static_cast<double>(std::ssize(values) - 2 * dropped);
}

}  // namespace

void AutoOptions::describe(OptionSet& o) {
  o.choice("may", may, {"equal", "local"}, kChangesResult,
           "equal: only strategies whose workers have equal weights after every step; local: also those that average "
           "now and then");
  o.integer("measure_steps", measure_steps, {1, 1'000'000}, kChangesResult, "dense steps before each plan");
  o.integer("try_steps", try_steps, {2, 1'000'000}, kChangesResult,
            "steps after which a strategy must have been faster than dense ones; the second half counts");
  o.integer("watch_steps", watch_steps, {1, 1'000'000}, kChangesResult,
            "steps after which is looked again whether they take as long as before; if not, all begins anew");
}

void AutoSgd::on_start(Step& s) {
  job_.emplace(s);
  chosen_ = kDense;
  start(kDense, s.t);
  enter(Phase::kMeasuring, s.t);
  step_ended_ = s.net.clock().now();
}

// From step t on. The optimizer's state goes along where the new strategy steps, too; for directions its second moments do.
void AutoSgd::start(const std::string& strategy, std::int64_t t) {
  check(strategy == kDense || job_->chooser != nullptr, "nobody here can make {}, which auto chose", strategy);
  inner_ = strategy == kDense ? std::make_unique<SyncSgd>(SyncSgdOptions{}) : job_->chooser->make(strategy);
  inner_began_ = t;
  Optimizer& opt = job_->opt;
  directions_.reset();
  if (inner_->optimizer_use() != OptimizerUse::kSteps) {
    OptimizerOptions options = opt.options();
    if (inner_->clips_own()) options.clip_norm = 0;
    directions_ = make_optimizer(options, job_->model.count(), inner_->optimizer_use(), opt.groups());
    directions_->set_clock(job_->net.clock());
    directions_->on_update = [&opt](double began, double ended) { opt.count_update(began, ended); };
    MomentCopy copy;
    copy.factor = static_cast<float>(job_->net.size());
    opt.visit(copy);
    copy.writes = true;
    directions_->visit(copy);
  }
  plan_ = plan_buckets(job_->model, inner_->buckets());
  next_ = 0;
  clip_.reset();
  if (const double limit = opt.options().clip_norm; inner_->clips_own() && limit > 0)
    clip_.emplace(limit, plan_.size());
  Step begin = view(*job_);
  begin.t = 0;
  inner_->on_start(begin);
}

// What is under way arrives, and what is owed is applied: afterwards all ranks have equal weights and owe nothing.
void AutoSgd::drain(Step& s) {
  Step end = view(s);
  inner_->on_finish(end);
  const auto owed = inner_->owed();
  if (owed.empty()) return;
  s.net.sum(owed).wait();
  vec::add_scaled(s.model.weights(), owed, -1.0F / static_cast<float>(s.net.size()));
}

// The step as the inner strategy sees it.
Step AutoSgd::view(Step& s) {
  if (directions_) {
    directions_->set_lr(s.opt.lr());
    const auto& groups = s.opt.options().groups;
    for (std::size_t g = 0; g < groups.size(); ++g) directions_->set_lr_factor(g, groups[g].lr_factor);
  }
  return Step{s.t - inner_began_, s.model, directions_ ? *directions_ : s.opt, s.net, s.loss, false, plan_, nullptr};
}

void AutoSgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  meter_->enter(static_cast<std::size_t>(bucket.index));
  s.left_alone = true;
  if (bucket.first_slot == plan_[next_].first_slot) {
    const Bucket& ready = plan_[next_++];
    if (clip_ && clip_->waits()) {
      held_.push_back(ready);
    } else {
      if (clip_) clip_->clip(static_cast<std::size_t>(ready.index), s.model.grads(ready));
      hand_over(s, ready);
    }
  }
  meter_->leave();
}

void AutoSgd::hand_over(Step& s, const Bucket& bucket) {
  Step inner = view(s);
  inner_->on_bucket_ready(inner, bucket);
  s.left_alone = inner.left_alone;
}

void AutoSgd::on_step(Step& s) {
  if (clip_) {
    for (const Bucket& bucket : held_) clip_->note(static_cast<std::size_t>(bucket.index), s.model.grads(bucket));
    if (!held_.empty()) clip_->clip_whole(s.model.grads());
    for (const Bucket& bucket : held_) hand_over(s, bucket);
    held_.clear();
    clip_->end_step();
  }
  Step inner = view(s);
  inner_->on_step(inner);  // (1) (4)
  next_ = 0;
  meter_->end_step(s.t - phase_began_, std::min(kSkip, options_.measure_steps - 1));
  const double now = s.net.clock().now();
  if (step_ended_ >= 0) step_s_.push_back(now - step_ended_);
  step_ended_ = now;
  if (s.t + 1 - phase_began_ < length()) return;
  decide(s);
  step_ended_ = s.net.clock().now();  // what a decision takes is no step's
}

std::int64_t AutoSgd::length() const {
  return phase_ == Phase::kMeasuring ? options_.measure_steps
         : phase_ == Phase::kTrying  ? options_.try_steps
                                     : options_.watch_steps;
}

void AutoSgd::enter(Phase phase, std::int64_t t) {
  phase_ = phase;
  phase_began_ = t;
  step_s_.clear();
  meter_.emplace(job_->net.clock(), job_->buckets.size());
  meter_->leave();
  updated_s_ = job_->opt.seconds();
}

// The mean over ranks of the dense steps that are measured, else of the second half of this phase's steps; without
// hiccups where the strategy has no period.
double AutoSgd::agreed_step_s(Step& s) const {
  const std::int64_t half = std::ssize(step_s_) / 2, skip = phase_ == Phase::kMeasuring ? std::min(kSkip, half) : half;
  const std::vector<double> late(step_s_.begin() + skip, step_s_.end());
  double seconds = trimmed_mean(late, options_.may == "equal" ? kHiccups : 0);
  agree_on_means(s.net, std::span(&seconds, 1));
  return seconds;
}

void AutoSgd::decide(Step& s) {
  const std::int64_t next = s.t + 1;
  if (2 * static_cast<std::int64_t>(step_s_.size()) < length()) return enter(phase_, next);  // resumed in mid-phase
  const double step_s = agreed_step_s(s);
  if (phase_ == Phase::kMeasuring) {
    dense_s_ = step_s;
    choose(s);  // (2)
    enter(chosen_ == kDense ? Phase::kWatching : Phase::kTrying, next);
    accepted_s_ = dense_s_;
  } else if (phase_ == Phase::kTrying) {
    accepted_s_ = step_s;
    if (step_s > kRealGain * dense_s_) {  // (3)
      tell(fmt::format("auto: back to ssgd: {} took {:.4g} ms a step, ssgd {:.4g}", chosen_, 1e3 * step_s,
                       1e3 * dense_s_));
      drain(s);
      chosen_ = kDense;
      start(kDense, next);
      accepted_s_ = dense_s_;
    }
    enter(Phase::kWatching, next);
  } else {
    const bool changed = step_s > kNoticeable * accepted_s_ || accepted_s_ > kNoticeable * step_s;
    if (changed) {  // (5)
      tell(fmt::format("auto: a step takes {:.4g} ms, and took {:.4g}: measuring again", 1e3 * step_s,
                       1e3 * accepted_s_));
      drain(s);
      chosen_ = kDense;
      start(kDense, next);
    }
    enter(changed ? Phase::kMeasuring : Phase::kWatching, next);
  }
}

void AutoSgd::choose(Step& s) {
  if (s.net.size() == 1 || job_->chooser == nullptr) return;
  if (dynamic_cast<const OwnStep*>(&s.opt) != nullptr) {
    return tell("auto: stays with ssgd: an optimizer of your own cannot make directions, which the others send");
  }
  JobProfile profile{s.model, s.net.size(), meter_->means(), 0, dense_s_, {}, s.opt.options()};
  profile.update_s = (s.opt.seconds() - updated_s_) / static_cast<double>(options_.measure_steps);
  profile.compute_s.push_back(profile.update_s);
  agree_on_means(s.net, profile.compute_s);
  profile.update_s = profile.compute_s.back();
  profile.compute_s.pop_back();
  profile.link = probe_link(s.net);
  Chooser::Choice choice;
  if (s.net.rank() == 0) choice = job_->chooser->choose(profile, options_.may == "local");
  chosen_ = gather_text(s.net, choice.strategy).front();
  check(chosen_.size() <= kLongestName, "the name of {} is too long to be kept", chosen_);
  tell(fmt::format("auto: ssgd takes {:.4g} ms a step; chose {}: {}", 1e3 * dense_s_, chosen_,
                   gather_text(s.net, choice.why).front()));
  if (chosen_ == kDense) return;
  drain(s);
  start(chosen_, s.t + 1);
}

void AutoSgd::on_finish(Step& s) {
  Step end = view(s);
  inner_->on_finish(end);
}

std::string AutoSgd::news() {
  if (std::string inner = inner_->news(); !inner.empty()) tell(inner);
  return std::exchange(news_, {});
}

// A run that goes on makes the strategy that was at work before it restores that one's state.
void AutoSgd::visit(StateVisitor& v) {
  const std::string before = chosen_;
  visit_text(v, "auto chosen", chosen_);
  auto phase = static_cast<std::int64_t>(phase_);
  std::int64_t phase_began = phase_began_, inner_began = inner_began_;
  v.integer("auto phase", phase);
  v.integer("auto phase began", phase_began);
  v.integer("auto inner began", inner_began);
  visit_real(v, "auto dense step", dense_s_);
  visit_real(v, "auto accepted step", accepted_s_);
  if (chosen_ != before) start(chosen_, inner_began);
  if (phase != static_cast<std::int64_t>(phase_) || phase_began != phase_began_) {
    enter(static_cast<Phase>(phase), phase_began);
    step_ended_ = -1;
  }
  inner_began_ = inner_began;
  inner_->visit(v);
  Below below(v, "auto directions/");
  if (directions_) directions_->visit(below);
  Below clip(v, "auto clip/");
  if (clip_) clip_->visit(clip);
}

// Of its dense steps; what comes later is the chosen strategy's.
double AutoSgd::bytes_sent(const Options&, const TrafficQuery& q) { return SyncSgd::bytes_sent({}, q); }

}  // namespace slipstream
