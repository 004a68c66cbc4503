// SPDX-License-Identifier: Apache-2.0
//
// The links of a simulated job. Each rank has one port, full duplex; each direction carries one thing at a time. A link
// between two ranks has a latency and a bandwidth. SimPorts says when something that is sent arrives, and books the
// ports for it. Bookings are made in the order of issue and never moved: what is sent waits for what the sender sent
// before, and passes the receiver's port in the first gap that it fits.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "sim/sim_faults.h"

namespace slipstream {

struct LinkModel {
  double latency_s = 0.0002;
  double bytes_per_s = 125e6;  // 1 Gbit/s
};

using LinkOverrides = std::map<std::pair<int, int>, LinkModel>;  // by (from, to)

class SimPorts {
 public:
  struct Passage {
    double left_at;     // when it has left the sender's port
    double arrives_at;  // when it has passed the receiver's port
  };

  // Every byte counts `bytes_scale` times. Throws ConfigError for links that make no sense. Ranks of one host share its
  // port and reach each other at no cost.
  SimPorts(int ranks, SimHosts hosts, LinkModel link, LinkOverrides overrides, double bytes_scale,
           const SimFaults& faults);

  Passage send(int from, int to, double bytes, double now);

  // When an exchange ends in which every worker sends `bytes` to every other one, in `rounds` rounds, so that the
  // slowest port and the longest delay set the pace. It begins when all ports are free and occupies them for as long as
  // its bytes take; while the last bytes travel, the next operation may begin to send.
  double exchange(int rounds, double bytes, double now);

  double bytes_scale() const { return bytes_scale_; }

 private:
  using Bookings = std::map<double, double>;  // begin and end, in order, without overlaps

  LinkModel link(int from, int to) const;                                           // as it is now, faults included
  static double book(Bookings& port, double earliest, double seconds, double now);  // returns the end of the booking

  SimHosts hosts_;
  LinkModel link_;
  LinkOverrides overrides_;
  double bytes_scale_;
  const SimFaults& faults_;
  std::vector<double> egress_free_;  // by rank
  std::vector<Bookings> ingress_;
};

}  // namespace slipstream
