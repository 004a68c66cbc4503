// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_links.h"

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
      ingress_(static_cast<std::size_t>(ranks)) {
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
  egress = std::max(now, egress) + busy_s;
  return {egress, book(ingress_[static_cast<std::size_t>(to)], egress - busy_s + through.latency_s, busy_s, now)};
}

double SimPorts::book(Bookings& port, double earliest, double seconds, double now) {
  while (!port.empty() && port.begin()->second <= now) port.erase(port.begin());
  double begin = earliest;
  for (const auto& [from, until] : port) {
    if (begin + seconds <= from + 1e-6 * seconds) break;  // a gap that is too short only by rounding fits
    begin = std::max(begin, until);
  }
  if (seconds > 0) port[begin] = begin + seconds;
  return begin + seconds;
}

double SimPorts::exchange(int rounds, double bytes, double now) {
  const int ranks = hosts_.workers;
  double latency_s = link_.latency_s, s_per_byte = (ranks - 1) / link_.bytes_per_s;  // of the slowest port
  if (!overrides_.empty() || !faults_.empty()) {
    latency_s = s_per_byte = 0;
    for (int r = 0; r < ranks; ++r) {
      double out = 0, in = 0;
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == r) continue;
        const LinkModel there = link(r, peer), back = link(peer, r);
        out += 1 / there.bytes_per_s;
        in += 1 / back.bytes_per_s;
        latency_s = std::max(latency_s, there.latency_s);
      }
      s_per_byte = std::max({s_per_byte, out, in});
    }
  }
  double start = now;
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
    start = std::max({start, egress_free_[r], ingress_[r].empty() ? now : ingress_[r].rbegin()->second});
  }
  const double free = start + rounds * bytes * bytes_scale_ * s_per_byte;
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
    egress_free_[r] = free;
    ingress_[r] = {{start, free}};
  }
  return free + rounds * latency_s;
}

}  // namespace slipstream
