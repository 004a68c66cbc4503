// SPDX-License-Identifier: Apache-2.0
//
// Faults of a simulated job: what goes wrong, on which rank, when. A script of them is part of a simulation's input, so
// a failing run replays exactly.
//
// A fault begins (and, where it has an end, ends) at a virtual time or when its first rank marks a step.
//   crash      the rank's code stops where it is; what has not left its port is lost; collectives it is part of break
//   freeze     the rank does nothing for a time; what is already on the wire goes on
//   drop       one message vanishes: its sender notices nothing, its receiver waits in vain (not for collectives)
//   slow       bandwidth divided by a factor, for all a rank sends and receives or for one direction of one pair;
//              affects what is started while it lasts
//   partition  nothing passes between these ranks and the rest; what is under way across is lost
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace slipstream {

struct FaultPoint {
  std::int64_t step = -1;
  double seconds = std::numeric_limits<double>::infinity();

  static FaultPoint at_step(std::int64_t t) { return {t, std::numeric_limits<double>::infinity()}; }
  static FaultPoint at_time(double seconds) { return {-1, seconds}; }
  static FaultPoint never() { return {}; }
};

struct Fault {
  enum class Kind { kCrash, kFreeze, kDrop, kSlow, kPartition };

  Kind kind = Kind::kCrash;
  std::vector<int> ranks;  // steps are those of the first one
  int to = -1;             // the other end of a pair; -1: no pair
  FaultPoint at, until;
  double seconds = 0.0;  // freeze
  double factor = 1.0;   // slow
  std::int64_t nth = 1;  // drop: 1 is the first message sent from `at` on

  static Fault crash(int rank, FaultPoint at);
  static Fault freeze(int rank, FaultPoint at, double seconds);
  static Fault drop(int from, int to, FaultPoint at, std::int64_t nth = 1);
  static Fault slow_rank(int rank, double factor, FaultPoint at, FaultPoint until = FaultPoint::never());
  static Fault slow_pair(int from, int to, double factor, FaultPoint at, FaultPoint until = FaultPoint::never());
  static Fault partition(std::vector<int> ranks, FaultPoint at, FaultPoint until = FaultPoint::never());

  bool separates(int a, int b) const;  // a partition, with a and b on different sides
};

// Which ranks share a machine, its port and its fate: each worker with its server where servers are beside workers.
struct SimHosts {
  int workers = 0;
  bool beside = false;

  int of(int rank) const { return beside && rank >= workers ? rank - workers : rank; }
};

// Which faults of a script are active, and what they do to links and messages.
class SimFaults {
 public:
  struct Entry {
    Fault fault;
    bool active = false;
    bool over = false;
    std::int64_t messages = 0;  // drop: sent since it began
  };

  // Throws ConfigError for ranks that do not exist and for values that make no sense.
  SimFaults(const std::vector<Fault>& script, int ranks, SimHosts hosts = {});

  std::vector<Entry>& entries() { return entries_; }
  bool empty() const { return entries_.empty(); }

  void set_crashed(int rank) { crashed_[static_cast<std::size_t>(rank)] = true; }
  bool crashed(int rank) const { return crashed_[static_cast<std::size_t>(rank)]; }

  // " (rank 3 is lost)" if a rank other than `peer` is known to be lost. It may be the reason: the peer may wait for
  // the lost rank. On the real wire the first rank to notice tells all.
  std::string known_lost(int peer) const;

  double slowdown(int from, int to) const;      // product of the active factors of this link
  const Fault* partition() const;               // an active one, or null
  const Fault* separating(int a, int b) const;  // an active one between these two, or null
  bool drops_next(int from, int to);            // counts a message

 private:
  SimHosts hosts_;
  std::vector<Entry> entries_;
  std::vector<bool> crashed_;
};

}  // namespace slipstream
