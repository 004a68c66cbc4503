// SPDX-License-Identifier: Apache-2.0
#include <slipstream/base/error.h>
#include <slipstream/runtime/session.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <optional>

#include "base/hash.h"
#include "base/vec.h"
#include "fabric/metered_fabric.h"
#include "model/bucketizer.h"
#include "model/torch_model.h"
#include "runtime/health.h"
#include "fabric/c10d_sums.h"
#include "runtime/launch.h"
#include "server/host.h"

namespace slipstream {
namespace {

std::atomic<bool> stop_requested{false};  // set by signal handlers, cleared by the session that was stopped

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

// Makes the tensors equal on all ranks: rank 0's values or, with `average` and floating point, the mean.
void share(Fabric& net, std::vector<torch::Tensor>& tensors, bool average) {
  torch::NoGradGuard no_grad;
  for (torch::Tensor& t : tensors) {
    const bool mean = average && t.is_floating_point();
    auto values = t.to(torch::kDouble).contiguous().view({-1});
    // A sum with zeros from all but rank 0 is a broadcast. Each double goes as two floats, which is exact for what
    // buffers hold: fp32 statistics, counters below 2^48.
    auto high = values.to(torch::kFloat);
    auto low = (values - high.to(torch::kDouble)).to(torch::kFloat);
    auto both = torch::cat({high, low}).contiguous();
    if (!mean && net.rank() != 0) both.zero_();
    net.sum({both.data_ptr<float>(), static_cast<std::size_t>(both.numel())}).wait();
    auto halves = both.to(torch::kDouble).view({2, -1});
    auto result = halves[0] + halves[1];
    if (mean) result = result / net.size();
    t.copy_(result.view(t.sizes()));
  }
}

}  // namespace

struct Session::State {
  Fabric& world;
  std::optional<ServerHost> host;  // of the parameter server beside this worker
  TorchModel model;
  MeteredFabric net;
  std::unique_ptr<Optimizer> opt;
  std::unique_ptr<Strategy> strategy;
  Bucketizer bucketizer;
  std::function<double(std::int64_t)> lr;
  Health health;
  Health::Report report;

  std::int64_t t = 0;
  std::int64_t rate_of = -1;  // the step whose learning rate is set
  bool held = false;
  double step_began = 0;
  double hook_seconds = 0;       // in the strategy's hooks, this step
  double optimizer_seconds = 0;  // of opt, up to the last step
  StepRecord record;

  State(Fabric& fabric, torch::nn::Module& module, const SessionOptions& options)
      : world(fabric),
        model(module),
        net(fabric),
        opt(make_optimizer(options.optimizer, model.flat().count())),
        strategy(options.registry.configure(options.strategy, options.set).make()),
        bucketizer(model.flat(), plan_buckets(model.flat(), strategy->buckets()),
                   [this](const Bucket& bucket) { bucket_ready(bucket); }),
        lr(options.lr),
        health(fabric) {}

  Step step_context() {
    if (lr && rate_of != t) opt->set_lr(lr(t));
    rate_of = t;
    return {t, model.flat(), *opt, net};
  }
  void bucket_ready(const Bucket& bucket) {
    const Stopwatch watch(net.clock(), hook_seconds);
    Step s = step_context();
    strategy->on_bucket_ready(s, bucket);
  }
  void look_for_trouble(double loss);
  bool exchange_health();
  void heed_health();
};

Session::Session(Fabric& world, torch::nn::Module& module, const SessionOptions& options)
    : state_(std::make_unique<State>(world, module, options)) {
  State& s = *state_;
  if (world.rank() != 0) vec::zero(s.model.flat().weights());
  world.sum(s.model.flat().weights()).wait();  // a sum with zeros is a broadcast
  share(world, s.model.others(), false);
  if (s.strategy->needs_servers() && ServerHost::needed(world)) s.host.emplace(world);
  Step first = s.step_context();
  s.strategy->on_start(first);
  s.model.on_gradient([&s](std::size_t slot) {
    if (!s.held) s.bucketizer.slot_ready(slot);
  });
  s.step_began = world.clock().now();
}

Session::~Session() = default;

const StepRecord& Session::step(double loss) {
  State& s = *state_;
  const Clock& clock = s.net.clock();
  s.model.check_gradients();
  s.look_for_trouble(loss);
  s.bucketizer.finish_backward();
  {
    const Stopwatch watch(clock, s.hook_seconds);
    Step context = s.step_context();
    context.loss = loss;
    s.strategy->on_step(context);
  }
  double agreeing_seconds = 0;  // nearly always nothing; a wait here is for a peer that is far behind
  bool news = false;
  {
    const Stopwatch watch(clock, agreeing_seconds);
    news = s.exchange_health();
  }
  const Traffic traffic = s.net.take();
  const double now = clock.now();
  const double update = s.opt->seconds() - s.optimizer_seconds;
  s.record = {s.t, loss, s.opt->lr(), now - s.step_began};
  s.record.exposed_seconds = traffic.exposed_seconds + agreeing_seconds;
  s.record.encode_seconds = std::max(0.0, s.hook_seconds - traffic.exposed_seconds - update);
  s.record.compute_seconds = s.record.seconds - s.record.exposed_seconds - s.record.encode_seconds;
  s.record.wire_seconds = traffic.wire_seconds;
  s.record.bytes_sent = traffic.bytes_sent;
  s.record.bytes_received = traffic.bytes_received;
  s.record.news = s.strategy->news();
  if (on_record) on_record(s.record, traffic);

  s.optimizer_seconds = s.opt->seconds();
  s.hook_seconds = 0;
  s.step_began = now;
  s.model.zero_grads();
  s.bucketizer.begin_step();
  ++s.t;
  if (news) s.heed_health();
  return s.record;
}

// Notes the first loss that is not finite and the tensor it came from, for the next exchange.
void Session::State::look_for_trouble(double loss) {
  if (std::isfinite(loss) || report.bad_step >= 0) return;
  report.bad_step = t;
  FlatModel& flat = model.flat();
  for (const auto values : {flat.weights(), flat.grads()}) {
    const std::size_t at = vec::first_nonfinite(values);
    if (at == values.size()) continue;
    report.bad_slot = &flat.slot_at(at) - flat.slots().data();
    return;
  }
}

bool Session::State::exchange_health() {
  report.step_seconds = net.clock().now() - step_began;
  report.wants_stop = stop_requested.load(std::memory_order_relaxed) ? 1 : 0;
  return health.exchange(t, report);
}

// All ranks see the same reports, so all stop here or none.
void Session::State::heed_health() {
  const auto& reports = health.reports();
  // The trouble of one rank is soon everybody's: the earliest report names its origin.
  const auto when = [](const Health::Report& r) { return r.bad_step < 0 ? INT64_MAX : r.bad_step; };
  const auto first =
      std::min_element(reports.begin(), reports.end(), [&](const auto& a, const auto& b) { return when(a) < when(b); });
  if (first->bad_step >= 0) {
    const std::string where = first->bad_slot < 0
                                  ? "all weights and gradients were still finite"
                                  : fmt::format("'{}' holds a value that is not finite",
                                                model.flat().slots()[static_cast<std::size_t>(first->bad_slot)].name);
    fail<DivergedError>(
        "the loss of rank {} is not a finite number at step {} ({}); try a smaller --lr, a warm-up "
        "(--lr-warmup-steps) or --clip-norm",
        first - reports.begin(), first->bad_step, where);
  }
  if (std::none_of(reports.begin(), reports.end(), [](const auto& r) { return r.wants_stop != 0; })) return;
  stop_requested.store(false, std::memory_order_relaxed);  // spent: a later session of this process is not meant
  fail<Interrupted>("stopped on request after step {}", t);
}

Session::Hold Session::hold() { return Hold(state_->held); }

void Session::finish() {
  State& s = *state_;
  Step context{s.t, s.model.flat(), *s.opt, s.net};  // of no step: the rate stays that of the last one
  s.strategy->on_finish(context);
  if (s.strategy->needs_servers()) leave_servers(s.world);
  if (s.host) s.host->wait();
  s.host.reset();
  average_buffers();
}

void Session::average_buffers() { share(state_->world, state_->model.others(), true); }
void Session::save(const std::string& path) const { state_->model.save_state_dict(path); }
std::uint64_t Session::weights_hash() { return hash_bytes(std::as_bytes(state_->model.flat().weights())); }

bool Session::agreement() {
  const std::uint64_t mine = weights_hash();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(state_->world.size()));
  state_->world.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))).wait();
  return std::all_of(all.begin(), all.end(), [mine](std::uint64_t theirs) { return theirs == mine; });
}

void Session::request_stop() noexcept { stop_requested.store(true, std::memory_order_relaxed); }
FlatModel& Session::model() { return state_->model.flat(); }
std::int64_t Session::steps() const { return state_->t; }

std::unique_ptr<Fabric> join() {
  const Placement placement = place({}, process_environment());
  return join_fabric(placement.supervisor ? Rendezvous{} : placement.at);
}

}  // namespace slipstream
