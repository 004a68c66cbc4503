// SPDX-License-Identifier: Apache-2.0
//
// Anchor: the weights a worker had when an average was started, and how the late average is merged into the weights it
// has by then. Snapshot and merge are one pass over memory each.
//
//   lerp       w <- keep w + (1 - keep) A      pulls w back: of the steps since the snapshot the share `keep` survives
//   additive   w <- (w - s) + A                the steps since the snapshot are kept, only their base is exchanged
//
// A is the mean over all ranks of the snapshots s. `message()` holds the snapshot, to be summed in place; while that is
// under way nothing else may be called.
#pragma once

#include <slipstream/base/state.h>

#include <cstddef>
#include <span>
#include <vector>

namespace slipstream {

class Anchor {
 public:
  // For `count` weights, followed in the message by `more` other floats. merge_additive needs `keeps_own`.
  Anchor(std::size_t count, std::size_t more, bool keeps_own) : message_(count + more), own_(keeps_own ? count : 0) {}

  void snapshot(std::span<const float> weights, std::span<const float> others);
  std::span<float> message() { return message_; }

  // After the message was summed over `ranks` ranks.
  void merge_lerp(std::span<float> weights, float keep, int ranks) const;
  void merge_additive(std::span<float> weights, int ranks) const;
  void merge_lerp_others(std::span<float> others, float keep, int ranks) const;

  void visit(StateVisitor& v);

 private:
  std::vector<float> message_;
  std::vector<float> own_;  // the snapshot, where a merge needs it
};

}  // namespace slipstream
