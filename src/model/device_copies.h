// SPDX-License-Identifier: Apache-2.0
//
// Copies between a device's memory and the host's, with torch's device-agnostic interface. On a device that has streams
// and events a copy runs beside the program, in the order in which the device does its work, and its Arrival tells when
// it has been made. Between tensors of the CPU, and on devices without events, it has been made at once.
#pragma once

#include <c10/core/Event.h>
#include <slipstream/model/flat_model.h>
#include <torch/torch.h>

#include <optional>
#include <utility>

namespace slipstream {

class Arrival {
 public:
  Arrival() = default;  // has arrived
  explicit Arrival(c10::Event event) : event_(std::move(event)) {}
  Arrival(Arrival&& other) noexcept : event_(std::exchange(other.event_, std::nullopt)) {}
  Arrival& operator=(Arrival&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Arrival();  // waits; what goes wrong on the device is told by the next use of it
  bool passed() const { return !event_ || event_->query(); }
  void wait() const;

 private:
  std::optional<c10::Event> event_;
};

// Both tensors must stay as they are until it has arrived; what the device does later waits for the copy by itself.
Arrival copy_beside(torch::Tensor& to, const torch::Tensor& from);

// Memory that a device can copy from and to by itself, where torch knows how to get it; else ordinary memory, for which
// devices make the program wait.
FlatModel::Buffer pinned_memory(std::size_t count);

}  // namespace slipstream
