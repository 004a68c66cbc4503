// SPDX-License-Identifier: Apache-2.0
//
// FrameSwitch: what happens to an Ethernet frame between two distant hosts, as a pure function of time: it may be lost,
// travels for the delay, waits its turn at the receiving port, which carries a limited number of bits per second, and
// comes out.
//
//     host ──▶ lost? ──▶ in the air: now + delay ──▶ the port's queue: one frame after the other at the rate ──▶ host
//
// The hub, the last port, is beside every host: frames from and to it pass at once and are never lost, so that a
// supervisor's control traffic is not part of the measured network. What a host may send per second is not limited here
// but by the host's own queue (Lab), which, unlike a switch, can make the sender wait instead of dropping.
//
// Invariant: two frames between the same two ports never overtake each other. Memory is bounded: a frame that would
// wait longer than kMaxWait at a port, or that finds kMaxFrames in the air, is dropped, as by a real switch. The same
// frames at the same times suffer the same losses. One thread; knows no clock and no devices: TapSwitch does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/rng.h"

namespace slipstream {

struct DistanceSpec {
  double bits_per_second;  // of every host's port; infinity: unlimited
  double delay_ms;         // one way, host to host
  double loss;             // the probability that a frame between hosts is lost, 0 … 1
};

class FrameSwitch {
 public:
  using Nanoseconds = std::int64_t;
  using Deliver = std::function<void(int port, std::span<const std::byte> frame)>;

  static constexpr std::size_t kMaxFrameBytes =
      1518;                                           // an MTU of 1500, the header, a VLAN tag; longer ones are dropped
  static constexpr std::size_t kMaxFrames = 200'000;  // in the air: 300 MB, more than 10 Gb/s for 200 ms
  static constexpr Nanoseconds kMaxWait = 100'000'000;  // at a port: as long as the queues of a lab without delay
  static constexpr Nanoseconds kNever = INT64_MAX;

  // Ports 0 … hosts-1 are hosts, port `hosts` is the hub. `deliver` is called from accept() and run_until().
  FrameSwitch(const DistanceSpec& spec, int hosts, Deliver deliver);

  // A frame that came out of `from` at `now`. Times never decrease from call to call.
  void accept(int from, std::span<const std::byte> frame, Nanoseconds now);
  // Delivers all frames due by `now`, each port's in order. Returns when the next one is due.
  Nanoseconds run_until(Nanoseconds now);

  std::int64_t dropped() const { return dropped_; }  // for lack of room; random losses do not count

 private:
  struct Frame {
    Nanoseconds due = 0;
    int to = 0;
    std::size_t size = 0;
    std::array<std::byte, kMaxFrameBytes> bytes;
  };
  using FrameFifo = std::deque<std::unique_ptr<Frame>>;
  struct Port {
    FrameFifo queue;            // `due`: when the frame's last bit has passed the port
    Nanoseconds free_from = 0;  // when all accepted frames will have passed
  };

  void send(int from, int to, std::span<const std::byte> frame, Nanoseconds now);
  void arrive(std::unique_ptr<Frame> frame);

  Nanoseconds delay_;
  double ns_per_byte_;
  double loss_;
  int hub_;
  Deliver deliver_;
  Rng chance_;
  std::unordered_map<std::uint64_t, int> port_of_;  // by address: the port it was last seen sending from
  FrameFifo air_;  // one for all: every frame travels equally long, so they arrive in the order in which they came
  std::vector<Port> ports_;
  std::vector<std::unique_ptr<Frame>> unused_;  // for reuse: no allocation per frame
  std::int64_t dropped_ = 0;
};

}  // namespace slipstream
