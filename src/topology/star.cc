// SPDX-License-Identifier: Apache-2.0
#include "topology/star.h"

#include "base/vec.h"

namespace slipstream {
namespace {

constexpr Tag kToServer = 0x57, kFromServer = 0x58;

}  // namespace

void Star::sum_at_server(Fabric& net, std::span<float> values) {
  if (net.rank() != 0) {
    net.send(0, kToServer, std::as_bytes(values)).wait();
    return;
  }
  const auto others = static_cast<std::size_t>(net.size() - 1);
  arrived_.resize(others * values.size());
  const auto part = [&](std::size_t other) {
    return std::span(arrived_).subspan(other * values.size(), values.size());
  };
  std::vector<InFlight> arriving;  // all at once: no rank waits behind a slower one
  for (std::size_t other = 0; other < others; ++other) {
    arriving.push_back(net.recv(static_cast<int>(other) + 1, kToServer, std::as_writable_bytes(part(other))));
  }
  for (std::size_t other = 0; other < others; ++other) {
    arriving[other].wait();
    vec::add(values, part(other));
  }
}

void Star::broadcast(Fabric& net, std::span<std::byte> bytes) {
  if (net.rank() != 0) {
    net.recv(0, kFromServer, bytes).wait();
    return;
  }
  std::vector<InFlight> leaving;
  for (int other = 1; other < net.size(); ++other) leaving.push_back(net.send(other, kFromServer, bytes));
  for (InFlight& message : leaving) message.wait();
}

}  // namespace slipstream
