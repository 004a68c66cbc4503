// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure_profile.h"

#include <slipstream/base/error.h>
#include <slipstream/runtime/session.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "fabric/c10d_sums.h"
#include "strategy/step_meter.h"
#include "task/torch_task.h"
#include "topology/agree.h"
#include "topology/link_probe.h"

namespace slipstream {
namespace {

constexpr std::int64_t kSkip = 4, kAlone = 16, kDense = 16;  // steps

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Every worker steps by itself and notes when its gradients become ready.
class Alone final : public Strategy {
 public:
  explicit Alone(std::unique_ptr<StepMeter>& meter) : meter_(meter) {}
  BucketRule buckets() const override { return BucketRule::per_slot(); }
  void on_start(Step& s) override { meter_ = std::make_unique<StepMeter>(s.net.clock(), s.buckets.size()); }
  void on_bucket_ready(Step&, const Bucket& bucket) override {
    meter_->enter(static_cast<std::size_t>(bucket.index));
    meter_->leave();
  }
  void on_step(Step& s) override {
    s.opt.step(s.model.weights(), s.model.grads());
    meter_->end_step(s.t, kSkip);
  }
  void visit(StateVisitor&) override {}

 private:
  std::unique_ptr<StepMeter>& meter_;
};

Registry registry_of_alone(std::unique_ptr<StepMeter>& meter) {
  StrategyInfo info;
  info.name = "alone";
  info.configure = [&meter] {
    return StrategyInfo::Configured{{},
                                    OptionSet("alone"),
                                    [&meter] { return std::make_unique<Alone>(meter); },
                                    [](const TrafficQuery&) { return 0.0; },
                                    [] { return false; }};
  };
  Registry registry;
  registry.add(std::move(info));
  return registry;
}

class Measurement {
 public:
  Measurement(MeshFabric& net, const TaskOptions& options, const OptimizerOptions& optimizer)
      : net_(net), task_(make_task(options, net.rank(), net.size())), optimizer_(optimizer) {
    at_ = task_->sampler().first_from({});
  }

  MeasuredProfile run() {
    compute_alone();
    compute_together();
    PlanProfile& p = found_.profile;
    p.workers = net_.size();
    p.optimizer = optimizer_;
    const auto cores = std::max(1U, std::thread::hardware_concurrency());
    if (net_.at().supervised) {  // all workers are on this machine
      p.cpu_factor = std::max(1.0, static_cast<double>(net_.size()) / cores);
      p.shared_cores = static_cast<unsigned>(net_.size()) >= cores;
    }
    p.take_link(probe_link(net_));
    return std::move(found_);
  }

 private:
  template <typename Each>
  void train(Session& session, std::int64_t steps, const Each& each) {
    for (std::int64_t i = 0; i < steps; ++i) {
      double loss = 0;
      const std::int64_t accumulate = task_->options().accumulate;
      for (std::int64_t micro = 0; micro < accumulate; ++micro) {
        std::optional<Session::Hold> hold;
        if (micro + 1 < accumulate) hold.emplace(session.hold());
        auto part = task_->loss(at_, micro);
        part.backward();
        loss += part.item<double>();
      }
      each(session.step(loss));
      at_ = task_->sampler().after(at_);
    }
  }

  // Gathers numbers of all ranks, ordered by rank and step.
  std::vector<double> gathered(std::span<const double> mine) {
    std::vector<double> all(mine.size() * static_cast<std::size_t>(net_.size()));
    net_.gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all))).wait();
    return all;
  }

  void compute_alone() {
    std::unique_ptr<StepMeter> meter;
    {
      Session session(net_, task_->module(),
                      {.strategy = "alone", .optimizer = optimizer_, .registry = registry_of_alone(meter)});
      for (const Slot& slot : session.model().slots()) {
        found_.profile.parameters.push_back({slot.name, slot.count, slot.rows});
      }
      train(session, kSkip + kAlone, [](const StepRecord&) {});
      session.finish();
    }
    PlanProfile& p = found_.profile;
    std::vector<double> times = meter->means();
    agree_on_means(net_, times);
    const std::vector<double> all = gathered(meter->totals());
    p.take_times(times);
    p.compute_s = median(all);
    for (std::size_t r = 0; r < static_cast<std::size_t>(net_.size()); ++r) {
      std::vector<double> factors;
      for (std::int64_t i = 0; i < kAlone; ++i) {
        factors.push_back(all[r * kAlone + static_cast<std::size_t>(i)] / p.compute_s);
      }
      p.compute_factors.push_back(std::move(factors));
    }
  }

  void compute_together() {
    std::vector<double> steps, compute, update, hidden_bytes;
    Session session(net_, task_->module(), {.strategy = "ssgd", .optimizer = optimizer_});
    train(session, kSkip + kDense, [&](const StepRecord& r) {
      if (r.t < kSkip) return;
      steps.push_back(r.seconds);
      compute.push_back(r.compute_seconds);
      update.push_back(r.update_seconds);
      const double hidden = r.wire_seconds > 0 ? std::max(0.0, 1 - r.exposed_seconds / r.wire_seconds) : 0;
      hidden_bytes.push_back(hidden * (r.bytes_sent + r.bytes_received));
    });
    session.finish();
    std::vector<double> figures{median(steps), median(compute), median(update), median(hidden_bytes)};
    agree_on_means(net_, figures);
    found_.dense_step_s = figures[0];
    found_.profile.update_s = figures[2];
    if (figures[3] > 0) {
      found_.profile.io_s_per_byte = std::max(0.0, figures[1] - found_.profile.compute_s) / figures[3];
    }
  }

  MeshFabric& net_;
  std::unique_ptr<TorchTask> task_;
  const OptimizerOptions optimizer_;
  Position at_{};
  MeasuredProfile found_;
};

}  // namespace

MeasuredProfile measure_profile(const TaskOptions& task, const OptimizerOptions& optimizer, const Rendezvous& at) {
  const auto net = join_fabric(at);
  try {
    MeasuredProfile found = Measurement(*net, task, optimizer).run();
    float done = 1;
    net->sum(std::span(&done, 1)).wait();  // nobody leaves before all are done
    return found;
  } catch (const FabricError&) {  // all ranks know of it already
    throw;
  } catch (const std::exception& e) {
    net->announce(fmt::format("rank {} ended: {}", at.rank, e.what()));
    throw;
  }
}

}  // namespace slipstream
