// SPDX-License-Identifier: Apache-2.0
//
// The processor time that a strategy's hooks take, in a SimWorld, where their work is real and time is not.
//
// HookMeter measures it: a Fabric around the simulated one, whose own work (copies, sums, hashes) is not the strategy's
// and is left out. Inside a hook its clock advances by that time, for strategies that measure what their work costs.
// ChargedStrategy lets it pass: a Strategy around another one, whose hooks take the virtual time that they are given.
// The cost of a bucket hook passes before it, since what is sent is made first; the cost of on_step passes after it,
// since most of its work uses what has arrived.
#pragma once

#include <slipstream/strategy/strategy.h>

#include <functional>
#include <memory>
#include <vector>

#include "fabric/forwarding_fabric.h"
#include "sim/sim_world.h"

namespace slipstream {

// Seconds of a step, by hook; means over steps where they were measured.
struct HookCosts {
  std::vector<double> bucket_s;  // by bucket; empty: none
  double step_s = 0;
  double server_s_per_byte = 0;  // of a parameter server, per byte pushed to it

  double total_s() const;
};

class HookMeter final : public ForwardingFabric {
 public:
  // One second of the processor is `clock_factor` seconds of the clock: stand-ins take less time than what they stand
  // for.
  HookMeter(Fabric& inner, double clock_factor)
      : ForwardingFabric(inner), clock_factor_(clock_factor), inside_(std::make_shared<double>(0)), clock_(*this) {}

  void begin();  // a hook begins
  double end();  // it ends; returns its CPU time without that spent inside the fabric
  double clock_factor() const { return clock_factor_; }

  Clock& clock() override { return clock_; }
  using Fabric::sum;
  InFlight sum(std::span<float> values, Wire wire) override;
  InFlight gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  using Fabric::recv;
  using Fabric::send;
  InFlight send(int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more) override;
  InFlight recv(int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) override;

  static double thread_cpu_s();

 private:
  class HookClock final : public Clock {
   public:
    explicit HookClock(HookMeter& meter) : meter_(meter) {}
    double now() const override { return meter_.inner().clock().now() + meter_.clock_factor_ * meter_.spent_s(); }

   private:
    HookMeter& meter_;
  };
  double spent_s() const;  // by the current hook
  class Uncounted;
  template <typename Start>
  InFlight uncounted(Start start);

  const double clock_factor_;
  std::shared_ptr<double> inside_;  // shared with operations: an InFlight may outlive this wrapper
  HookClock clock_;
  double began_s_ = -1, inside_before_s_ = 0;  // negative: no hook is running
};

class ChargedStrategy final : public Strategy {
 public:
  // `meter` may be null: then nothing is measured. If nothing is charged, the time that the meter's clock has advanced
  // by passes after a hook. All must outlive the strategy.
  ChargedStrategy(std::unique_ptr<Strategy> inner, SimPort& port, const HookCosts& charged, HookMeter* meter)
      : inner_(std::move(inner)), port_(port), charged_(charged), meter_(meter) {}

  bool needs_servers() const override { return inner_->needs_servers(); }
  BucketRule buckets() const override { return inner_->buckets(); }
  OptimizerUse optimizer_use() const override { return inner_->optimizer_use(); }
  bool clips_own() const override { return inner_->clips_own(); }
  void on_start(Step& s) override { inner_->on_start(s); }
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void on_finish(Step& s) override { inner_->on_finish(s); }
  void visit(StateVisitor& v) override { inner_->visit(v); }
  std::span<float> owed() override { return inner_->owed(); }
  std::string news() override { return inner_->news(); }

  // Means over the second half of a job's `steps` steps, when adaptive strategies have settled and memory is warm.
  HookCosts measured(std::int64_t steps) const;

 private:
  double measure(const std::function<void()>& hook);
  bool charges() const { return charged_.step_s > 0 || !charged_.bucket_s.empty(); }

  std::unique_ptr<Strategy> inner_;
  SimPort& port_;
  const HookCosts& charged_;
  HookMeter* meter_;
  std::vector<HookCosts> by_step_;
};

}  // namespace slipstream
