// SPDX-License-Identifier: Apache-2.0
//
// Lab: a network laboratory inside this machine. Every host is a network namespace with one interface, e0, on a cable
// to a switch, the hub; every cable carries at most the declared rate in each direction.
//
//     host 0 (10.88.0.1) e0 ───── p0 ┐
//     host 1 (10.88.0.2) e0 ───── p1 ┼ br0 (10.88.0.254): the hub, where a supervisor and its rendezvous live
//     host 2 (10.88.0.3) e0 ───── p2 ┘
//
// Hosts may be far apart: a delay and a loss apply to every frame between two of them. The kernel's netem does that at
// the sending host; without netem a process of ours replaces the bridge (TapSwitch), and the hub's interface is an e0,
// too. Then frames between a host and the hub are neither delayed nor lost; netem delays those that go to the hub.
//
// Invariant: the namespaces have no names and exist through this object and the processes inside; when both are gone,
// by SIGKILL too, the kernel removes them with their interfaces and queues. Several labs on one machine do not meet. It
// isolates nothing but the network, and has no way out: hosts reach each other and the hub only. The thread that makes
// a lab must live as long as the lab.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/net_namespace.h"
#include "lab/tap_switch.h"

namespace slipstream {

// How fast the cables are and how distant the hosts. `delay_ms` is one way, so a round trip takes twice that.
struct LabSpec {
  std::string rate = "none";  // as tc takes it: "100mbit", "1gbit"; "none": as fast as the machine copies
  double delay_ms = 0;
  double loss_percent = 0;

  // RATE[,DELAY[,LOSS]]: "none", "100mbit", "1gbit,20ms", "100mbit,25ms,0.1%"; ConfigError otherwise.
  static LabSpec parse(std::string_view text);
  double bits_per_second() const;  // infinity for "none"
  bool has_distance() const { return delay_ms > 0 || loss_percent > 0; }
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
  // What `tool command` prints inside the host, such as tc, "qdisc show".
  std::string output_at(int host, const std::string& tool, const std::string& command) const;

  // Throws ConfigError unless this process may build a lab; to be checked before anything else is started.
  static void require_root();

 private:
  void check_host(int host) const;
  void connect_by_cables(const LabSpec& spec);
  void connect_by_switch(const LabSpec& spec);
  void configure(const std::string& hub_device);
  void delay_hosts(const LabSpec& spec);
  void limit_hosts(const LabSpec& spec, const std::string& place);
  void limit_hub(const LabSpec& spec);

  NetNamespace hub_;
  std::vector<NetNamespace> hosts_;
  std::optional<TapSwitch> switch_;  // last: it ends before the namespaces are given up
};

}  // namespace slipstream
