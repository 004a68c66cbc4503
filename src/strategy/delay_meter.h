// SPDX-License-Identifier: Apache-2.0
//
// DelayMeter: how many local steps an average takes on the wire, measured on every rank and agreed by all. Each rank
// counts the steps from the start of an average until it has arrived; where the merge had to wait, the wait is added, in
// steps. A rank that starts early also waits for the others to start, and no delay would help against that; the last to
// start sees the wire alone. So an average counts with the smallest figure of all ranks.
//
// The figures of one average are gathered while the next is under way, so nobody waits for them. What is agreed is the
// second largest of the last four averages: a single hiccup changes nothing, a slower link counts after two averages, a
// faster one after three. All times are in steps, so a change of the computing counts as one of the link.
//
// It sends one float per average, and only where `agree` is called.
#pragma once

#include <slipstream/base/state.h>
#include <slipstream/fabric/fabric.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace slipstream {

class DelayMeter {
 public:
  explicit DelayMeter(Fabric& net) : net_(net), all_(static_cast<std::size_t>(net.size())) {}

  void began();                                   // an average was started
  void stepped(bool arrived);                     // a local step later
  void waits(const std::function<void()>& wait);  // the merge: calls `wait`, which returns when the average is there

  // The steps an average takes; 0 where too little is known yet. Once for every average, on all ranks.
  float agree();
  void settle() { gather_.wait(); }
  void visit(StateVisitor& v);  // settles first

 private:
  Fabric& net_;
  double began_s_ = 0;
  std::int64_t steps_ = 0;         // since then
  float took_ = 0;                 // steps the last average took here; 0: still under way
  float mine_ = 0;                 // the same, while it is gathered
  std::vector<float> all_;         // of the average before, by rank
  std::array<float, 4> recent_{};  // the smallest of all ranks, newest first
  InFlight gather_;                // last: it uses the memory above
};

}  // namespace slipstream
