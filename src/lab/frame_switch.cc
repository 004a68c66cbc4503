// SPDX-License-Identifier: Apache-2.0
#include "lab/frame_switch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "slipstream/base/error.h"

namespace slipstream {
namespace {

constexpr std::uint64_t kSeed = 0x51195712ea3;
constexpr std::size_t kAddressBytes = 6;
constexpr std::size_t kHeaderBytes = 14;  // destination, source, type

std::uint64_t address_at(std::span<const std::byte> frame, std::size_t offset) {
  std::uint64_t address = 0;
  std::memcpy(&address, frame.data() + offset, kAddressBytes);
  return address;
}

// Broadcast and multicast: the lowest bit of the first byte.
bool is_for_all(std::span<const std::byte> frame) { return (frame[0] & std::byte{1}) != std::byte{0}; }

}  // namespace

FrameSwitch::FrameSwitch(const DistanceSpec& spec, int hosts, Deliver deliver)
    : delay_(std::llround(spec.delay_ms * 1e6)),
      ns_per_byte_(8e9 / spec.bits_per_second),
      loss_(spec.loss),
      hub_(hosts),
      deliver_(std::move(deliver)),
      chance_(kSeed),
      ports_(static_cast<std::size_t>(hosts) + 1) {
  check(spec.bits_per_second > 0 && spec.delay_ms >= 0 && spec.loss >= 0 && spec.loss < 1,
        "a switch with {} bits per second, a delay of {} ms and a loss of {}", spec.bits_per_second, spec.delay_ms,
        spec.loss);
}

void FrameSwitch::accept(int from, std::span<const std::byte> frame, Nanoseconds now) {
  if (frame.size() < kHeaderBytes || frame.size() > kMaxFrameBytes) {
    ++dropped_;
    return;
  }
  port_of_[address_at(frame, kAddressBytes)] = from;
  const auto known = is_for_all(frame) ? port_of_.end() : port_of_.find(address_at(frame, 0));
  if (known != port_of_.end()) {
    if (known->second != from) send(from, known->second, frame, now);
    return;
  }
  for (int to = 0; to <= hub_; ++to) {
    if (to != from) send(from, to, frame, now);
  }
}

void FrameSwitch::send(int from, int to, std::span<const std::byte> frame, Nanoseconds now) {
  if (from == hub_ || to == hub_) {
    deliver_(to, frame);
    return;
  }
  if (loss_ > 0 && chance_.uniform() < loss_) return;
  if (air_.size() >= kMaxFrames) {
    ++dropped_;
    return;
  }
  if (unused_.empty()) unused_.push_back(std::make_unique<Frame>());
  std::unique_ptr<Frame> sent = std::move(unused_.back());
  unused_.pop_back();
  sent->due = now + delay_;
  sent->to = to;
  sent->size = frame.size();
  std::copy(frame.begin(), frame.end(), sent->bytes.begin());
  air_.push_back(std::move(sent));
}

// A frame reaches the receiving port, at frame->due.
void FrameSwitch::arrive(std::unique_ptr<Frame> frame) {
  Port& port = ports_[static_cast<std::size_t>(frame->to)];
  const Nanoseconds starts = std::max(port.free_from, frame->due);
  if (starts - frame->due > kMaxWait) {
    ++dropped_;
    unused_.push_back(std::move(frame));
    return;
  }
  port.free_from = starts + std::llround(static_cast<double>(frame->size) * ns_per_byte_);
  frame->due = port.free_from;
  port.queue.push_back(std::move(frame));
}

FrameSwitch::Nanoseconds FrameSwitch::run_until(Nanoseconds now) {
  while (!air_.empty() && air_.front()->due <= now) {
    arrive(std::move(air_.front()));
    air_.pop_front();
  }
  Nanoseconds next = air_.empty() ? kNever : air_.front()->due;
  for (int to = 0; to < hub_; ++to) {
    FrameFifo& queue = ports_[static_cast<std::size_t>(to)].queue;
    while (!queue.empty() && queue.front()->due <= now) {
      deliver_(to, std::span(queue.front()->bytes).first(queue.front()->size));
      unused_.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    if (!queue.empty()) next = std::min(next, queue.front()->due);
  }
  return next;
}

}  // namespace slipstream
