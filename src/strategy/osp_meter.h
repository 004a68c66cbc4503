// SPDX-License-Identifier: Apache-2.0
//
// OspMeter: the times that OSP's budget needs, taken while it trains: how long a step computes, how long it waits for
// what was overlapped (ICS), and how fast the wire is. It decides nothing.
//
//   backward_done  joins  exchange_begins  exchange_ended  overlaps  step_done     in a step, in this order
//   agree                                                                          where a split is decided, before the last
#pragma once

#include <slipstream/base/clock.h>
#include <slipstream/base/state.h>
#include <slipstream/fabric/fabric.h>

#include <cstdint>
#include <vector>

#include "schedule/ics_budget.h"

namespace slipstream {

class OspMeter {
 public:
  explicit OspMeter(const Clock& clock) : clock_(clock) {}

  void backward_done(double loss);
  // Around the wait for the overlapped traffic.
  template <typename Wait>
  void joins(Wait wait) {
    const double began = clock_.now();
    wait();
    sums_.exposed_s += clock_.now() - began;
  }
  // Around an exchange that nothing hides, of so many bytes each way: its rate is the wire's.
  void exchange_begins() { exchange_began_ = clock_.now(); }
  void exchange_ended(double bytes);
  void overlaps(double bytes) { overlapped_bytes_ = bytes; }  // that this step leaves on the wire
  double overlapped_bytes() const { return overlapped_bytes_; }
  void step_done() { step_ended_ = clock_.now(); }

  // Means of a step since the last call and the latest rate, by rank; the same on all ranks.
  std::vector<IcsMeasure> agree(Fabric& net);

  void visit(StateVisitor& v);

 private:
  const Clock& clock_;
  IcsMeasure sums_;  // but for the rate
  std::int64_t steps_ = 0;
  double overlapped_bytes_ = 0.0;  // of the last step
  double step_ended_ = -1.0, exchange_began_ = 0.0;
};

}  // namespace slipstream
