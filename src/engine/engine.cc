// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <cmath>

#include "base/vec.h"
#include "engine/groups.h"
#include "optim/own_step.h"

namespace slipstream {
namespace {

constexpr const char* kNoData = "no data of its own";

// Adds the time it lives to a total.
class Stopwatch {
 public:
  Stopwatch(const Clock& clock, double& total) : clock_(clock), total_(total), start_(clock.now()) {}
  ~Stopwatch() { total_ += clock_.now() - start_; }

 private:
  const Clock& clock_;
  double& total_;
  double start_;
};

// The optimizer must not clip again where the engine clips.
OptimizerOptions without_own_clip(OptimizerOptions optimizer, const Strategy& strategy) {
  if (strategy.clips_own()) optimizer.clip_norm = 0.0;
  return optimizer;
}

// The rule for a stand-in, each of whose bytes counts `bytes_scale` times.
BucketRule of_stand_in(BucketRule rule, double bytes_scale) {
  const auto fewer = [bytes_scale](std::size_t bytes) {
    return static_cast<std::size_t>(static_cast<double>(bytes) / bytes_scale);
  };
  return {fewer(rule.first_bytes), fewer(rule.bytes)};
}

// The names of its slots, in the order backward reaches them; of more than two, the first and the last.
std::string layers_of(const Bucket& bucket, const FlatModel& model) {
  if (bucket.first_slot == bucket.end_slot) return "nothing";
  const std::string& first = model.slots()[bucket.end_slot - 1].name;
  const std::string& last = model.slots()[bucket.first_slot].name;
  const std::size_t slots = bucket.end_slot - bucket.first_slot;
  return slots == 1 ? first : fmt::format("{}{}{}", first, slots == 2 ? ", " : " … ", last);
}

std::unique_ptr<Optimizer> optimizer_for(const Strategy& strategy, FlatModel& model, const EngineOptions& options) {
  const OptimizerOptions optimizer = without_own_clip(options.optimizer, strategy);
  if (!options.own_step) {
    return make_optimizer(optimizer, model.count(), strategy.optimizer_use(),
                          map_groups(options.optimizer.groups, model));
  }
  if (strategy.optimizer_use() != OptimizerUse::kSteps) {
    fail<ConfigError>(
        "this strategy moves the weights itself, by the rules of sgd, adam or adamw; an optimizer of your own goes "
        "with strategies of whole steps: ssgd, powersgd, local, dasgd, cocod, overlap-local, diloco, streaming-diloco");
  }
  return std::make_unique<OwnStep>(optimizer, model.grads(), options.own_step);
}

}  // namespace

Engine::Engine(Fabric& world, FlatModel& model, std::unique_ptr<Strategy> strategy, const EngineOptions& options)
    : world_(world),
      model_(model),
      first_(options.meeting.steps),
      group_(options.meeting.group),
      lr_(options.lr),
      stop_(options.stop),
      net_(world),
      optimizer_(optimizer_for(*strategy, model, options)),
      strategy_(std::move(strategy)),
      step_{0, model, *optimizer_, net_},
      bucketizer_(model, plan_buckets(model, of_stand_in(strategy_->buckets(), options.bytes_scale)),
                  [this](const Bucket& bucket) { bucket_ready(bucket); }),
      health_(options.health ? std::make_unique<Health>(world) : nullptr) {
  optimizer_->set_clock(world.clock());
  optimizer_->on_update = [this](double began, double ended) {
    work_.push_back({WorkRecord::Kind::kUpdate, {}, began, ended});
  };
  for (const Bucket& bucket : bucketizer_.plan()) bucket_names_.push_back(layers_of(bucket, model));
  step_.buckets = bucketizer_.plan();
  step_.chooser = options.chooser;
  if (strategy_->clips_own() && options.optimizer.clip_norm > 0.0) {
    clip_.emplace(options.optimizer.clip_norm, bucketizer_.plan().size());
  }
  if (options.brings != nullptr && !options.brings->weights.empty()) {
    vec::copy(model.weights(), std::span(options.brings->weights));
  }
  FromSource(world, options.meeting.source).floats("weights", model.weights());
  ServerBooks servers;
  if (strategy_->needs_servers() && options.brings != nullptr && !options.meeting.first) {
    servers = options.brings->servers;
    if (servers.share(world, options.optimizer, model.count())) vec::copy(model.weights(), servers.weights());
  }
  if (strategy_->needs_servers() && ServerHost::needed(world)) host_.emplace(world);
  set_lr();
  const double began = world.clock().now();
  strategy_->on_start(step_);
  rate_of_ = -1;  // the rate may have changed by the first step
  if (options.brings != nullptr) adopt(*options.brings, options.meeting);
  if (!servers.empty()) servers.give_to(*strategy_);
  step_began_ = world.clock().now();
  start_ = record_of(began, step_began_, net_.take());
}

const StepRecord& Engine::step(double loss) {
  const Clock& clock = net_.clock();
  note_trouble(loss);
  bucketizer_.finish_backward();
  clip_held();
  {
    const Stopwatch watch(clock, hook_seconds_);
    const double began = clock.now();
    set_lr();
    step_.loss = loss;
    strategy_->on_step(step_);
    note_work(WorkRecord::Kind::kStep, {}, began);
  }
  double agreeing_seconds = 0;  // nearly always 0; otherwise a peer is far behind
  bool news = false;
  {
    const Stopwatch watch(clock, agreeing_seconds);
    news = exchange_health();
  }
  Traffic traffic = net_.take();
  traffic.work = std::exchange(work_, {});
  const double now = traffic.ended = clock.now();
  record_ = record_of(step_began_, now, traffic);
  record_.loss = loss;
  record_.exposed_seconds += agreeing_seconds + std::exchange(idle_seconds_, 0);
  record_.update_seconds = optimizer_->seconds() - optimizer_seconds_;
  record_.encode_seconds = std::max(0.0, hook_seconds_ - traffic.exposed_seconds - record_.update_seconds);
  record_.compute_seconds = record_.seconds - record_.exposed_seconds - record_.encode_seconds - record_.update_seconds;
  record_.news = strategy_->news();
  if (std::exchange(without_data_, false)) record_.news += record_.news.empty() ? kNoData : std::string("; ") + kNoData;
  if (on_record) on_record(record_, traffic);

  step_began_ = now;
  optimizer_seconds_ = optimizer_->seconds();
  hook_seconds_ = 0;
  vec::zero(model_.grads());
  bucketizer_.begin_step();
  ++step_.t;
  if (news) {
    refuse_divergence();
    heed_stop();
    heed_newcomers();
  }
  return record_;
}

const StepRecord& Engine::step_without_data() {
  idle_seconds_ = world_.clock().now() - step_began_;
  without_data_ = true;
  vec::zero(model_.grads());
  return step(step_.loss);
}

void Engine::finish() {
  if (health_ && !diverged_) {
    health_->conclude(report_);
    refuse_divergence();
  }
  const double began = world_.clock().now();
  strategy_->on_finish(step_);  // belongs to no step: the rate is still the last step's
  leave(stopped_ ? Goodbye::kStopped : Goodbye::kDone);
  finish_ = record_of(began, world_.clock().now(), net_.take());
}

void Engine::leave(Goodbye why) {
  if (strategy_->needs_servers()) leave_servers(net_, why);
  if (host_) host_->wait();
  host_.reset();
}

Holdings Engine::release(bool in_order) {
  ServerBooks servers;
  if (in_order) {
    strategy_->on_finish(step_);
    if (strategy_->needs_servers()) servers = ServerBooks::of(*strategy_, model_.count());
    leave(Goodbye::kRegroups);
    float all = 1;
    world_.sum(std::span(&all, 1)).wait();  // a fast rank must not leave while others still need it
  }
  Holdings mine{.steps = t(), .rank = world_.rank(), .workers = world_.size(), .group = group_};
  mine.servers = std::move(servers);
  mine.weights.assign(model_.weights().begin(), model_.weights().end());
  mine.state.save("optim/", [this](StateVisitor& v) { optimizer_->visit(v); });
  mine.state.save("engine/", [this](StateVisitor& v) { visit(v); });
  const auto owed = strategy_->owed();
  mine.owed.assign(owed.begin(), owed.end());
  if (health_) {
    for (const Health::Report& report : health_->reports()) mine.norms.push_back(report.owed_norm);
  }
  return mine;
}

// Restores what this worker brought, and takes the source's optimizer. A collective.
void Engine::adopt(const Holdings& mine, const Meeting& meeting) {
  if (meeting.first) return;
  const std::int64_t first = first_;
  if (mine.steps >= 0) {
    mine.state.restore("optim/", [this](StateVisitor& v) { optimizer_->visit(v); });
    mine.state.restore("engine/", [this](StateVisitor& v) { visit(v); });
  }
  FromSource taken(world_, meeting.source);
  optimizer_->visit(taken);
  visit(taken);
  first_ = first;  // keep this group's own value
  const auto owed = strategy_->owed();
  if (mine.owed.size() == owed.size()) {
    vec::copy(owed, std::span(mine.owed));
    vec::scale(owed, static_cast<float>(world_.size()) / static_cast<float>(mine.workers));  // keeps the mean
  }
}

void Engine::set_lr_factor(std::size_t group, double factor) {
  if (strategy_->needs_servers()) {
    fail<ConfigError>(
        "the factor of parameter group {} cannot change during training: servers move the weights with this strategy, "
        "and learn it at the start; change the learning rate of all parameters, or take a strategy without servers, "
        "such as strategy=ssgd or strategy=dasgd",
        group);
  }
  optimizer_->set_lr_factor(group, factor);
}

void Engine::visit(StateVisitor& v) {
  if (clip_) clip_->visit(v);
  v.integer("first step", first_);
}

void Engine::go_on_from(std::int64_t t) {
  step_.t = t - first_;
  step_began_ = world_.clock().now();
  net_.take();  // traffic of restoring counts for no step
}

void Engine::set_lr() {
  if (lr_ && rate_of_ != step_.t) optimizer_->set_lr(lr_(t()));
  rate_of_ = step_.t;
}

void Engine::bucket_ready(const Bucket& bucket) {
  if (clip_ && clip_->waits()) {
    held_.push_back(bucket);
    return;
  }
  if (clip_) clip_->clip(static_cast<std::size_t>(bucket.index), model_.grads(bucket));
  hand_over(bucket);
}

void Engine::clip_held() {
  if (!clip_) return;
  for (const Bucket& bucket : held_) clip_->note(static_cast<std::size_t>(bucket.index), model_.grads(bucket));
  if (!held_.empty()) clip_->clip_whole(model_.grads());
  for (const Bucket& bucket : held_) hand_over(bucket);
  held_.clear();
  clip_->end_step();
}

void Engine::hand_over(const Bucket& bucket) {
  const Stopwatch watch(net_.clock(), hook_seconds_);
  const double began = net_.clock().now();
  set_lr();
  step_.left_alone = false;
  strategy_->on_bucket_ready(step_, bucket);
  note_work(WorkRecord::Kind::kBucket, bucket_names_[static_cast<std::size_t>(bucket.index)], began);
  if (on_taken && !step_.left_alone) on_taken(bucket);
}

void Engine::note_work(WorkRecord::Kind kind, std::string_view bucket, double began) {
  work_.push_back({kind, bucket, began, net_.clock().now()});
}

// What the meter and the clock know; step() splits up the rest.
StepRecord Engine::record_of(double began, double ended, const Traffic& traffic) const {
  StepRecord record{.t = t(), .lr = optimizer_->lr(), .seconds = ended - began};
  record.exposed_seconds = traffic.exposed_seconds;
  record.wire_seconds = traffic.wire_seconds;
  record.background_wire_seconds = traffic.background_wire_seconds;
  record.background_exposed_seconds = traffic.background_exposed_seconds;
  record.bytes_sent = traffic.bytes_sent;
  record.bytes_received = traffic.bytes_received;
  return record;
}

// Notes the first loss that is not finite and the tensor it came from, for the next exchange.
void Engine::note_trouble(double loss) {
  if (std::isfinite(loss) || report_.bad_step >= 0) return;
  report_.bad_step = t();
  for (const auto values : {model_.weights(), model_.grads()}) {
    const std::size_t at = vec::first_nonfinite(values);
    if (at == values.size()) continue;
    report_.bad_slot = &model_.slot_at(at) - model_.slots().data();
    return;
  }
}

bool Engine::exchange_health() {
  if (!health_) return false;
  report_.step_seconds = net_.clock().now() - step_began_;
  if (health_->due(step_.t)) {
    report_.somebody_waits = world_.somebody_waits_to_join() ? 1 : 0;
    report_.owed_norm = std::sqrt(vec::dot(strategy_->owed(), strategy_->owed()));
  }
  report_.wants_stop = stop_ != nullptr && stop_->load(std::memory_order_relaxed) ? 1 : 0;
  return health_->exchange(step_.t, report_);
}

// All ranks see the same reports, so either all stop here or none.
void Engine::refuse_divergence() {
  const auto& reports = health_->reports();
  // A loss that is not finite soon spreads to all ranks: the earliest report names where it began.
  const auto when = [](const Health::Report& r) { return r.bad_step < 0 ? INT64_MAX : r.bad_step; };
  const auto first =
      std::min_element(reports.begin(), reports.end(), [&](const auto& a, const auto& b) { return when(a) < when(b); });
  if (first->bad_step < 0) return;
  diverged_ = true;
  const std::string where = first->bad_slot < 0
                                ? "all weights and gradients were still finite"
                                : fmt::format("'{}' holds a value that is not finite",
                                              model_.slots()[static_cast<std::size_t>(first->bad_slot)].name);
  fail<DivergedError>(
      "the loss of rank {} is not a finite number at step {} ({}); try a smaller --lr, a warm-up "
      "(--lr-warmup-steps) or --clip-norm",
      first - reports.begin(), first->bad_step, where);
}

void Engine::heed_stop() {
  const auto& reports = health_->reports();
  std::vector<std::size_t> asked;
  for (std::size_t r = 0; r < reports.size(); ++r) {
    if (reports[r].wants_stop != 0) asked.push_back(r);
  }
  if (asked.empty()) return;
  if (stop_ != nullptr) stop_->store(false, std::memory_order_relaxed);  // used up: it must not stop a later job
  stopped_ = true;
  fail<Interrupted>("stopped after step {}, as rank{} {} {} asked to", t(), asked.size() > 1 ? "s" : "",
                    fmt::join(asked, ", "), asked.size() > 1 ? "were" : "was");
}

void Engine::heed_newcomers() {
  const auto& reports = health_->reports();
  const bool knocked =
      std::any_of(reports.begin(), reports.end(), [](const Health::Report& r) { return r.somebody_waits != 0; });
  if (knocked) fail<GroupChanges>("a worker waits to join after step {}", t());
}

}  // namespace slipstream
