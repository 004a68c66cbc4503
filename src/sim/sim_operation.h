// SPDX-License-Identifier: Apache-2.0
//
// SimOperation: what all operations of a simulated rank have in common. An operation is issued, settles at a virtual
// time (which may change while peers act) and shows its result in the caller's memory only in wait(). Code that touches
// memory in flight is caught: the memory's hash must be the same in wait() as at the issue.
//
// SimCore: the parts of one simulation that operations share.
#pragma once

#include <slipstream/fabric/in_flight.h>

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "sim/sim_faults.h"
#include "sim/sim_links.h"
#include "sim/sim_scheduler.h"

namespace slipstream {

// One line of a simulation's diary: which rank did what, when.
struct SimEvent {
  double seconds = 0.0;
  int rank = 0;
  std::string what;

  bool operator==(const SimEvent&) const = default;
};

struct SimCore {
  int ranks;  // workers and servers
  SimHosts hosts;
  double timeout_s;
  bool record_events;
  SimScheduler scheduler;
  SimFaults faults;
  SimPorts ports;
  std::vector<std::vector<const void*>> awaited;  // by rank: what it waits for
  std::vector<SimEvent> events;

  void note(int rank, const std::string& what) {
    if (record_events) events.push_back({scheduler.now(), rank, what});
  }
  // Ranks that wait for `subject` look again at `time`.
  void wake_waiting_for(const void* subject, double time);
};

class SimOperation : public Operation {
 public:
  void wait() final;
  bool done() final;
  double finished_at() const final { return finished_at_; }

 protected:
  // `memory` is what the caller must not touch until wait(); up to two ranges.
  SimOperation(SimCore& core, int rank, std::string what, std::span<const std::byte> memory,
               std::span<const std::byte> more = {});

  virtual double settles_at() const = 0;    // as things stand: when it ends, or the deadline if it cannot succeed
  virtual const void* subject() const = 0;  // identifies what peers settle: see SimCore::wake_waiting_for
  virtual void conclude() = 0;              // settled: write the result or throw FabricError

  double now() const { return core_.scheduler.now(); }
  double deadline() const { return issued_at_ + core_.timeout_s; }

  SimCore& core_;
  const int rank_;
  const std::string what_;  // "sum of 40 bytes"
  const double issued_at_;

 private:
  std::uint64_t memory_hash() const;

  std::span<const std::byte> memory_, more_;
  std::uint64_t hash_at_issue_;
  double finished_at_ = 0.0;
  bool ended_ = false;
  std::exception_ptr error_;
};

}  // namespace slipstream
