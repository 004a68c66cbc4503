// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_hooks.h"

#include <algorithm>
#include <ctime>
#include <numeric>

namespace slipstream {

double HookCosts::total_s() const { return std::accumulate(bucket_s.begin(), bucket_s.end(), step_s); }

double HookMeter::thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

namespace {

class Inside {
 public:
  explicit Inside(double& total) : total_(total), began_(HookMeter::thread_cpu_s()) {}
  ~Inside() { total_ += HookMeter::thread_cpu_s() - began_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  double& total_;
  double began_;
};

}  // namespace

class HookMeter::Uncounted final : public Operation {
 public:
  Uncounted(std::unique_ptr<Operation> inner, std::shared_ptr<double> inside)
      : inner_(std::move(inner)), inside_(std::move(inside)) {}
  ~Uncounted() override {
    const Inside inside(*inside_);
    inner_.reset();
  }
  void wait() override {
    const Inside inside(*inside_);
    inner_->wait();
  }
  bool done() override {
    const Inside inside(*inside_);
    return inner_->done();
  }
  double finished_at() const override { return inner_->finished_at(); }

 private:
  std::unique_ptr<Operation> inner_;
  std::shared_ptr<double> inside_;
};

template <typename Start>
InFlight HookMeter::uncounted(Start start) {
  const Inside inside(*inside_);
  InFlight operation = start();
  if (!operation.active()) return operation;
  return InFlight(std::make_unique<Uncounted>(operation.release(), inside_));
}

InFlight HookMeter::sum(std::span<float> values, Wire wire) {
  return uncounted([&] { return inner().sum(values, wire); });
}

InFlight HookMeter::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  return uncounted([&] { return inner().gather(mine, all); });
}

InFlight HookMeter::send(int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more) {
  return uncounted([&] { return inner().send(to, tag, bytes, more); });
}

InFlight HookMeter::recv(int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) {
  return uncounted([&] { return inner().recv(from, tag, bytes, more); });
}

void HookMeter::begin() {
  inside_before_s_ = *inside_;
  began_s_ = thread_cpu_s();
}

double HookMeter::spent_s() const {
  return began_s_ < 0 ? 0 : std::max(0.0, thread_cpu_s() - began_s_ - (*inside_ - inside_before_s_));
}

double HookMeter::end() {
  const double spent = spent_s();
  began_s_ = -1;
  return spent;
}

double ChargedStrategy::measure(const std::function<void()>& hook) {
  if (meter_ == nullptr) {
    hook();
    return 0;
  }
  meter_->begin();
  hook();
  const double spent = meter_->end();
  if (!charges() && meter_->clock_factor() > 0) port_.compute(meter_->clock_factor() * spent);
  return spent;
}

void ChargedStrategy::on_bucket_ready(Step& s, const Bucket& bucket) {
  const auto b = static_cast<std::size_t>(bucket.index);
  if (b == 0) by_step_.push_back({std::vector<double>(s.buckets.size()), 0, 0});
  if (b < charged_.bucket_s.size() && charged_.bucket_s[b] > 0) port_.compute(charged_.bucket_s[b]);
  by_step_.back().bucket_s[b] = measure([&] { inner_->on_bucket_ready(s, bucket); });
}

void ChargedStrategy::on_step(Step& s) {
  if (s.buckets.empty()) by_step_.emplace_back();
  by_step_.back().step_s = measure([&] { inner_->on_step(s); });
  if (charged_.step_s > 0) port_.compute(charged_.step_s);
}

HookCosts ChargedStrategy::measured(std::int64_t steps) const {
  HookCosts mean;
  const auto first = static_cast<std::size_t>(steps / 2);
  if (first >= by_step_.size()) return mean;
  const auto count = static_cast<double>(by_step_.size() - first);
  mean.bucket_s.resize(by_step_.back().bucket_s.size());
  for (std::size_t i = first; i < by_step_.size(); ++i) {
    mean.step_s += by_step_[i].step_s / count;
    for (std::size_t b = 0; b < mean.bucket_s.size(); ++b) mean.bucket_s[b] += by_step_[i].bucket_s[b] / count;
  }
  return mean;
}

}  // namespace slipstream
