// SPDX-License-Identifier: Apache-2.0
#include "model/device_copies.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <thread>

namespace slipstream {
namespace {

// torch 1.13 has no Event::synchronize.
template <typename Event>
void wait_for(const Event& event) {
  if constexpr (requires { event.synchronize(); }) {
    event.synchronize();
  } else {
    while (!event.query()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

void Arrival::wait() const {
  if (event_) wait_for(*event_);
}

Arrival::~Arrival() {
  try {
    wait();
  } catch (const c10::Error&) {
  }
}

Arrival copy_beside(torch::Tensor& to, const torch::Tensor& from) {
  torch::NoGradGuard no_grad;
  const c10::Device device = to.is_cpu() ? from.device() : to.device();
  if (!device.is_cpu()) {
    try {
      c10::Event made(device.type());
      to.copy_(from, /*non_blocking=*/true);
      made.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
      return Arrival(std::move(made));
    } catch (const c10::Error&) {  // the device has no events: copy again, and wait for it
    }
  }
  to.copy_(from);
  return {};
}

FlatModel::Buffer pinned_memory(std::size_t count) {
  try {
    const auto memory =
        torch::zeros({static_cast<std::int64_t>(count)}, torch::TensorOptions(torch::kFloat).pinned_memory(true));
    return {memory.data_ptr<float>(), [memory](float*) {}};
  } catch (const c10::Error&) {  // torch knows no such memory for this device
    return FlatModel::allocate(count);
  }
}

}  // namespace slipstream
