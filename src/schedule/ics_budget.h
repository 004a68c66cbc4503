// SPDX-License-Identifier: Apache-2.0
//
// IcsBudget: how many bytes OSP may synchronise during the next computation instead of before it. Two rules:
//
//   loss       what the wire carries in one computation (rate × compute time), × clip(1 - loss / first loss, 0, 1):
//              none while gradients are large, more as training settles
//   measured   additive increase while that traffic stays hidden, multiplicative decrease when somebody waited for it
//
// and never more than a cap. It is fed what all ranks measured, so that all come to the same number. select_ics() then
// picks the least important parts that fit.
#pragma once

#include <slipstream/base/state.h>

#include <cstddef>
#include <span>
#include <vector>

namespace slipstream {

// One rank's measurements since the last update; the rate is the latest one.
struct IcsMeasure {
  double loss = 0.0;         // mean
  double compute_s = 0.0;    // of one step
  double bytes_per_s = 0.0;  // pushed, updated and pulled
  double exposed_s = 0.0;    // waited for the overlapped traffic, in one step

  void visit(StateVisitor& v);
};

class IcsBudget {
 public:
  enum class Rule { kLoss, kMeasured };

  IcsBudget(Rule rule, double cap_bytes) : rule_(rule), cap_bytes_(cap_bytes) {}

  double update(std::span<const IcsMeasure> all);  // by rank; returns bytes()
  double bytes() const { return bytes_; }
  double ramp() const { return ramp_; }
  void visit(StateVisitor& v);

 private:
  Rule rule_;
  double cap_bytes_;
  double bytes_ = 0.0;
  double first_loss_ = 0.0;  // 0: not known yet
  double ramp_ = 0.0;
};

struct IcsCandidate {
  double bytes = 0.0;
  double score = 0.0;
  bool pinned = false;  // never taken
};

// For each candidate, whether it is taken: by ascending score, the first among equals. Those that do not fit are
// skipped.
std::vector<bool> select_ics(const std::vector<IcsCandidate>& candidates, double budget_bytes);

}  // namespace slipstream
