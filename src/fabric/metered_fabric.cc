// SPDX-License-Identifier: Apache-2.0
#include "fabric/metered_fabric.h"

#include <algorithm>
#include <utility>

namespace slipstream {

class MeteredFabric::Measured final : public Operation {
 public:
  Measured(std::unique_ptr<Operation> inner, std::shared_ptr<Meter> meter, const Clock& clock, OperationRecord record)
      : inner_(std::move(inner)), meter_(std::move(meter)), clock_(clock), record_(record) {}

  void wait() override {
    record_.wait_began = clock_.now();
    inner_->wait();
    record_.wait_ended = clock_.now();
    record_.finished = std::min(inner_->finished_at(), record_.wait_ended);
    if (std::exchange(booked_, true)) return;
    const double blocked = record_.wait_ended - record_.wait_began;
    meter_->traffic.exposed_seconds += blocked;
    if (record_.background) meter_->traffic.background_exposed_seconds += blocked;
    meter_->traffic.operations.push_back(record_);
  }
  bool done() override { return inner_->done(); }
  double finished_at() const override { return inner_->finished_at(); }

 private:
  std::unique_ptr<Operation> inner_;
  std::shared_ptr<Meter> meter_;
  const Clock& clock_;
  OperationRecord record_;
  bool booked_ = false;
};

double MeteredFabric::sum_bytes(std::size_t count, int size, Wire wire) {
  if (wire == Wire::kFp32) return 2.0 * (size - 1) / size * static_cast<double>(count * sizeof(float));
  return 2.0 * (size - 1) * static_cast<double>(sum_shard(count, size) * sizeof(std::uint16_t));
}

template <typename Start>
InFlight MeteredFabric::measure(const OperationRecord& record, double sent, double received, Start start) {
  meter_->traffic.bytes_sent += sent;
  meter_->traffic.bytes_received += received;
  OperationRecord begun = record;
  begun.started = clock().now();
  InFlight inner = start();
  if (!inner.active()) return inner;  // nothing to move, nothing to measure
  return InFlight(std::make_unique<Measured>(inner.release(), meter_, clock(), begun));
}

InFlight MeteredFabric::sum(std::span<float> values, Wire wire) {
  const double moved = sum_bytes(values.size(), size(), wire);
  return measure({.kind = "sum", .bytes = static_cast<double>(values.size_bytes())}, moved, moved,
                 [&] { return inner().sum(values, wire); });
}

InFlight MeteredFabric::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const double moved = static_cast<double>(mine.size()) * (size() - 1);
  return measure({.kind = "gather", .bytes = static_cast<double>(mine.size())}, moved, moved,
                 [&] { return inner().gather(mine, all); });
}

InFlight MeteredFabric::send(int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more) {
  const auto all = static_cast<double>(bytes.size() + more.size());
  return measure({.kind = "send", .bytes = all, .background = lane_of(tag) != 0}, beside(to) ? 0 : all, 0,
                 [&] { return inner().send(to, tag, bytes, more); });
}

InFlight MeteredFabric::recv(int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) {
  const auto all = static_cast<double>(bytes.size() + more.size());
  return measure({.kind = "recv", .bytes = all, .background = lane_of(tag) != 0}, 0, beside(from) ? 0 : all,
                 [&] { return inner().recv(from, tag, bytes, more); });
}

Traffic MeteredFabric::take() {
  Traffic taken = std::exchange(meter_->traffic, {});
  auto& operations = taken.operations;
  std::sort(operations.begin(), operations.end(),
            [](const OperationRecord& a, const OperationRecord& b) { return a.started < b.started; });
  const auto count = [](const OperationRecord& op, double& counted_until, double& seconds) {
    seconds += std::max(0.0, op.finished - std::max(op.started, counted_until));
    counted_until = std::max(counted_until, op.finished);
  };
  for (const OperationRecord& op : operations) {
    count(op, meter_->counted_until, taken.wire_seconds);
    if (op.background) count(op, meter_->background_counted_until, taken.background_wire_seconds);
  }
  return taken;
}

}  // namespace slipstream
