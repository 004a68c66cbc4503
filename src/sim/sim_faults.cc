// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_faults.h"

#include <slipstream/base/error.h>

#include <algorithm>

namespace slipstream {

Fault Fault::crash(int rank, FaultPoint at) {
  Fault fault;
  fault.kind = Kind::kCrash;
  fault.ranks = {rank};
  fault.at = at;
  return fault;
}

Fault Fault::freeze(int rank, FaultPoint at, double seconds) {
  Fault fault = crash(rank, at);
  fault.kind = Kind::kFreeze;
  fault.seconds = seconds;
  return fault;
}

Fault Fault::drop(int from, int to, FaultPoint at, std::int64_t nth) {
  Fault fault = crash(from, at);
  fault.kind = Kind::kDrop;
  fault.to = to;
  fault.nth = nth;
  return fault;
}

Fault Fault::slow_rank(int rank, double factor, FaultPoint at, FaultPoint until) {
  Fault fault = crash(rank, at);
  fault.kind = Kind::kSlow;
  fault.factor = factor;
  fault.until = until;
  return fault;
}

Fault Fault::slow_pair(int from, int to, double factor, FaultPoint at, FaultPoint until) {
  Fault fault = slow_rank(from, factor, at, until);
  fault.to = to;
  return fault;
}

Fault Fault::partition(std::vector<int> ranks, FaultPoint at, FaultPoint until) {
  Fault fault;
  fault.kind = Kind::kPartition;
  fault.ranks = std::move(ranks);
  fault.at = at;
  fault.until = until;
  return fault;
}

bool Fault::separates(int a, int b) const {
  const auto inside = [this](int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); };
  return kind == Kind::kPartition && inside(a) != inside(b);
}

SimFaults::SimFaults(const std::vector<Fault>& script, int ranks, SimHosts hosts)
    : hosts_(hosts), crashed_(static_cast<std::size_t>(ranks)) {
  for (std::size_t i = 0; i < script.size(); ++i) {
    const Fault& fault = script[i];
    std::vector<int> named = fault.ranks;
    const bool pair = fault.kind == Fault::Kind::kDrop || fault.to >= 0;
    if (pair) named.push_back(fault.to);
    if (named.empty()) fail<ConfigError>("fault {} of the script names no rank", i);
    for (int rank : named) {
      if (rank < 0 || rank >= ranks) {
        fail<ConfigError>("fault {} of the script names rank {}; there are ranks 0 to {}", i, rank, ranks - 1);
      }
    }
    if (!(fault.seconds >= 0.0) || !(fault.factor > 0.0) || fault.nth < 1) {
      fail<ConfigError>(
          "fault {} of the script lasts {} s, slows by {} and drops message {}; these must be at least 0, "
          "above 0 and at least 1",
          i, fault.seconds, fault.factor, fault.nth);
    }
    entries_.push_back({fault});
  }
}

std::string SimFaults::known_lost(int peer) const {
  std::string text;
  for (std::size_t r = 0; r < crashed_.size(); ++r) {
    if (crashed_[r] && static_cast<int>(r) != peer) text += fmt::format(" (rank {} is lost)", r);
  }
  return text;
}

double SimFaults::slowdown(int from, int to) const {
  from = hosts_.of(from);
  to = hosts_.of(to);
  double product = 1.0;
  for (const Entry& entry : entries_) {
    if (!entry.active || entry.fault.kind != Fault::Kind::kSlow) continue;
    const int rank = entry.fault.ranks.front();
    const bool hit = entry.fault.to < 0 ? rank == from || rank == to : rank == from && entry.fault.to == to;
    if (hit) product *= entry.fault.factor;
  }
  return product;
}

const Fault* SimFaults::partition() const {
  for (const Entry& entry : entries_) {
    if (entry.active && entry.fault.kind == Fault::Kind::kPartition) return &entry.fault;
  }
  return nullptr;
}

const Fault* SimFaults::separating(int a, int b) const {
  for (const Entry& entry : entries_) {
    if (entry.active && entry.fault.separates(hosts_.of(a), hosts_.of(b))) return &entry.fault;
  }
  return nullptr;
}

bool SimFaults::drops_next(int from, int to) {
  bool dropped = false;
  for (Entry& entry : entries_) {
    const Fault& fault = entry.fault;
    if (!entry.active || fault.kind != Fault::Kind::kDrop || fault.ranks.front() != from || fault.to != to) continue;
    if (++entry.messages == fault.nth) dropped = true;
  }
  return dropped;
}

}  // namespace slipstream
