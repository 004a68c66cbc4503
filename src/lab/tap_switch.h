// SPDX-License-Identifier: Apache-2.0
//
// TapSwitch: gives a lab distance where the kernel has no netem. Every host and the hub get an interface e0 (a TAP
// device). A separate process carries their frames from one to the other, by the rules of FrameSwitch.
//
// It is a process, so that its work neither waits for nor disturbs the supervisor; with real-time priority if that is
// granted, since a switch does not wait for the hosts' computing. Frames have an MTU of 1500 and are carried one at a
// time: one core carries about a gigabit per second, and the cost shows as this process's CPU time (named lab-switch in
// ps).
//
// Invariant: the process ends with this object and with the thread that made it, by SIGKILL too; its interfaces go with
// it. Ctrl-C does not end it: hosts that finish cleanly still need their network. It sets up no addresses, and the
// interfaces start down.
#pragma once

#include <sys/types.h>

#include <vector>

#include "lab/frame_switch.h"
#include "lab/net_namespace.h"

namespace slipstream {

class TapSwitch {
 public:
  // Throws ConfigError where there is no /dev/net/tun.
  TapSwitch(const DistanceSpec& spec, const std::vector<NetNamespace>& hosts, const NetNamespace& hub);
  ~TapSwitch();
  TapSwitch(const TapSwitch&) = delete;
  TapSwitch& operator=(const TapSwitch&) = delete;

  pid_t process() const { return process_; }

 private:
  pid_t process_;
};

}  // namespace slipstream
