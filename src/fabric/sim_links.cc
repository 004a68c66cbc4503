// SPDX-License-Identifier: Apache-2.0
#include "fabric/sim_links.h"

#include <slipstream/base/error.h>

#include <algorithm>

namespace slipstream {
namespace {

void check_link(const LinkModel& link) {
  if (!(link.latency_s >= 0.0) || !(link.bytes_per_s > 0.0)) {
    fail<ConfigError>("a link of {} bytes/s with a latency of {} s: the rate must be above 0, the latency at least 0",
                      link.bytes_per_s, link.latency_s);
  }
}

}  // namespace

SimPorts::SimPorts(int ranks, SimHosts hosts, LinkModel link, LinkOverrides overrides, double bytes_scale,
                   const SimFaults& faults)
    : hosts_(hosts),
      link_(link),
      overrides_(std::move(overrides)),
      bytes_scale_(bytes_scale),
      faults_(faults),
      egress_free_(static_cast<std::size_t>(ranks)),
      ingress_free_(static_cast<std::size_t>(ranks)) {
  check_link(link_);
  for (const auto& [pair, special] : overrides_) {
    check_link(special);
    if (std::min(pair.first, pair.second) < 0 || std::max(pair.first, pair.second) >= ranks) {
      fail<ConfigError>("a link from rank {} to rank {} is described; there are ranks 0 to {}", pair.first, pair.second,
                        ranks - 1);
    }
  }
  if (!(bytes_scale > 0.0)) fail<ConfigError>("bytes_scale = {} must be above 0", bytes_scale);
}

LinkModel SimPorts::link(int from, int to) const {
  const auto special = overrides_.find({from, to});
  LinkModel link = special == overrides_.end() ? link_ : special->second;
  link.bytes_per_s /= faults_.slowdown(from, to);
  return link;
}

SimPorts::Passage SimPorts::send(int from, int to, double bytes, double now) {
  from = hosts_.of(from);
  to = hosts_.of(to);
  if (from == to) return {now, now};
  const LinkModel through = link(from, to);
  const double busy_s = bytes * bytes_scale_ / through.bytes_per_s;
  double& egress = egress_free_[static_cast<std::size_t>(from)];
  double& ingress = ingress_free_[static_cast<std::size_t>(to)];
  egress = std::max(now, egress) + busy_s;
  ingress = std::max(egress + through.latency_s, ingress + busy_s);
  return {egress, ingress};
}

double SimPorts::ring(int rounds, double bytes, double now) {
  LinkModel slowest = link_;
  const int ranks = hosts_.workers;
  const auto ports = static_cast<std::ptrdiff_t>(ranks);
  if (!overrides_.empty() || !faults_.empty()) {
    slowest = link(ranks - 1, 0);
    for (int r = 0; r + 1 < ranks; ++r) {
      const LinkModel next = link(r, r + 1);
      slowest.bytes_per_s = std::min(slowest.bytes_per_s, next.bytes_per_s);
      slowest.latency_s = std::max(slowest.latency_s, next.latency_s);
    }
  }
  double start = now;
  for (auto* free_at : {&egress_free_, &ingress_free_}) {
    start = std::max(start, *std::max_element(free_at->begin(), free_at->begin() + ports));
  }
  const double end = start + rounds * (slowest.latency_s + bytes * bytes_scale_ / slowest.bytes_per_s);
  for (auto* free_at : {&egress_free_, &ingress_free_}) std::fill_n(free_at->begin(), ports, end);
  return end;
}

}  // namespace slipstream
