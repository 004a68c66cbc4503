// SPDX-License-Identifier: Apache-2.0
//
// Lab: a network laboratory inside this machine. Every host is a network namespace with one interface, e0, on a cable
// to a switch, the hub; every cable carries at most the declared rate in each direction.
//
//     host 0 (10.88.0.1) e0 ───── p0 ┐
//     host 1 (10.88.0.2) e0 ───── p1 ┼ br0 (10.88.0.254): the hub, where a supervisor and its store live
//     host 2 (10.88.0.3) e0 ───── p2 ┘
//
// Invariant: the namespaces have no names and hang on this object and on the processes inside; when both are gone, by
// SIGKILL too, the kernel removes them with their interfaces and queues. Several labs on one machine do not meet.
// Does not isolate anything but the network, and knows no way out: hosts reach each other and the hub only.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/net_namespace.h"

namespace slipstream {

// How fast the cables are. `delay_ms` is added to every packet that leaves a host, so a round trip between two hosts
// takes twice that; it needs a kernel with netem.
struct LabSpec {
  std::string rate = "none";  // as tc takes it: "100mbit", "1gbit"; "none": as fast as the machine copies
  double delay_ms = 0;

  static LabSpec parse(std::string_view text);  // "none", "100mbit", "1gbit,20ms"; ConfigError otherwise
  double bits_per_second() const;               // infinity for "none"
};

class Lab {
 public:
  static constexpr int kMaxHosts = 253;  // the addresses of 10.88.0.0/24 less the hub's

  Lab(const LabSpec& spec, int hosts);

  int hosts() const { return static_cast<int>(hosts_.size()); }
  std::string address(int host) const;
  std::string hub_address() const;

  // For a forked child, before exec: moves the calling thread into the host's namespace, for good.
  void enter(int host) const;
  // Runs f on this thread inside the hub's namespace, then returns. A socket that f opens stays at the hub.
  void at_hub(const std::function<void()>& f) const;
  // What `tool command` prints inside the host, for example tc, "qdisc show".
  std::string output_at(int host, const std::string& tool, const std::string& command) const;

  // Throws ConfigError unless this process may build a lab; for checking before anything else is started.
  static void require_root();

 private:
  void check_host(int host) const;
  void connect();
  void delay(double delay_ms);
  void limit(const std::string& rate, const std::string& place_at_host);

  NetNamespace hub_;
  std::vector<NetNamespace> hosts_;
};

}  // namespace slipstream
