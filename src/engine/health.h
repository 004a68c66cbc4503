// SPDX-License-Identifier: Apache-2.0
//
// Health: how the ranks of a job agree, without waiting, that training has gone wrong or should stop. Every few steps
// each rank contributes a small record to a gather; it is read when the next one is due, so nobody waits unless a peer
// is that far behind. All ranks read the same records and so reach the same verdict at the same step. They agree on the
// interval in the same way: about a second's worth of steps.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace slipstream {

class Health {
 public:
  struct Report {
    double step_seconds = 0;
    std::int64_t bad_step = -1;  // the first step whose loss was not finite; -1: none
    std::int64_t bad_slot = -1;  // the tensor that was found not finite; -1: none was
    std::int64_t wants_stop = 0;
    std::int64_t somebody_waits = 0;  // to join
    double owed_norm = 0;             // of what this worker owes
  };

  explicit Health(Fabric& net) : net_(net), all_(static_cast<std::size_t>(net.size())) {}

  bool due(std::int64_t t) const { return t >= due_; }  // is the next exchange() one that sends a report?
  // True when new reports of all ranks have come (see reports()). Call once a step, with the same t on all ranks.
  bool exchange(std::int64_t t, const Report& mine);
  // Exchanges reports once more and waits for them: for the end of a run, which no further exchange follows.
  void conclude(const Report& mine);
  const std::vector<Report>& reports() const { return all_; }

 private:
  static constexpr double kIntervalSeconds = 1.0;
  static constexpr std::int64_t kMaxIntervalSteps = 200;

  Fabric& net_;
  Report mine_;
  std::vector<Report> all_;
  std::vector<Report> incoming_;
  std::int64_t due_ = 0;  // the step of the next exchange
  InFlight gather_;       // last: it uses the memory above
};

}  // namespace slipstream
