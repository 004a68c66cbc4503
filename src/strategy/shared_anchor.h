// SPDX-License-Identifier: Apache-2.0
//
// SharedAnchor: averaging weights by compressed differences, in the background. All ranks hold the same bits z, the
// shared anchor; a rank sends of its weights only what it has moved away from z, through a codec that need not send all
// of it. With u the movement and e what this rank still owes:
//
//   start     u <- w - z;   e <- e + u;   m <- codec(e);   e <- e - m;   the mean M of all ranks' m is under way
//   merge     z <- z + M;   w <- (w - u) + M
//
// w - u is z plus the steps taken since the start, so the merge is the additive rule of Anchor. z is only ever moved by
// what came over the wire, never recomputed from a rank's own weights, so it cannot drift apart.
//
// During a job nothing is lost: mean over ranks of (z + e + steps since the start) is the mean of what all have learnt.
// At its end what is owed is dropped. A merge takes all of u out of w and gives back only M, so e is in nobody's
// weights, and the last average, which is dense, averages weights. (Where an average is under way at the end, u is still
// in w, and only what was owed before that average is dropped.) Adding e then would do harm: it is movement of many
// periods ago, taken at places the weights have left since.
#pragma once

#include <slipstream/strategy/strategy.h>

#include <memory>
#include <vector>

#include "topology/compressed_sum.h"

namespace slipstream {

class SharedAnchor {
 public:
  SharedAnchor(const CompressedSumOptions& options, std::size_t count)
      : shared_(count), moved_(count), owed_(count), mean_(options.make(count)) {}

  void reset(std::span<const float> weights);  // z <- w, which is equal on all ranks; nothing is owed
  void start(Step& s);
  bool done() const { return !under_way_ || mean_->done(); }
  void merge(std::span<float> weights);
  void settle();                // waits for what is under way; the merge then only moves the weights
  void visit(StateVisitor& v);  // settles first, which may need the others: all ranks save at the same step

 private:
  std::vector<float> shared_, moved_, owed_;  // z, u (less M once that has arrived), e
  bool under_way_ = false;
  std::unique_ptr<CompressedSum> mean_;
};

}  // namespace slipstream
