// SPDX-License-Identifier: Apache-2.0
//
// DelayMeter: how many local steps an average takes, measured on every rank and agreed by all. Each rank counts the
// steps from the start of an average until it has arrived; where the merge had to wait, the wait is added, in steps.
// The figures of one average are gathered while the next is under way, so nobody waits for them. An average counts with
// the slowest rank's figure, and what is agreed is the second largest of the last four averages: a single hiccup
// changes nothing, a slower link counts after two averages, a faster one after three.
#pragma once

#include <slipstream/base/state.h>
#include <slipstream/fabric/fabric.h>

#include <array>
#include <cstdint>
#include <vector>

namespace slipstream {

class DelayMeter {
 public:
  explicit DelayMeter(int ranks) : all_(static_cast<std::size_t>(ranks)) {}

  void began(double now);                  // an average was started
  void stepped(bool arrived);              // a local step later
  void waited(double from, double until);  // the merge; both equal where nothing was waited for

  // The steps an average takes; 0 where too little is known yet. Once for every average, on all ranks.
  float agree(Fabric& net);
  void settle() { gather_.wait(); }
  void visit(StateVisitor& v);  // settles first

 private:
  double began_ = 0;
  std::int64_t steps_ = 0;         // since then
  float took_ = 0;                 // steps the last average took here; 0: still under way
  float mine_ = 0;                 // the same, while it is gathered
  std::vector<float> all_;         // of the average before, by rank
  std::array<float, 4> recent_{};  // the largest of all ranks, newest first
  InFlight gather_;                // last: it uses the memory above
};

}  // namespace slipstream
