// SPDX-License-Identifier: Apache-2.0
//
// OwnClip: limits the norm of this worker's own gradient bucket by bucket, while backward still works on the others. A
// bucket may be as long as its usual share of the whole: limit × sqrt(its mean squared norm / that of all), means over
// about the last ten steps and before clipping. So the whole never exceeds the limit, and a gradient that grows in all
// its parts alike is shortened as clip_grad_norm_ would. In the first step shares are unknown: `waits()` asks to keep
// the buckets until the whole gradient is there.
//
// The limit is that of the global norm. A worker's own gradient is noisier than the mean of all, so it is shortened
// more often.
#pragma once

#include <slipstream/base/state.h>

#include <cstddef>
#include <span>
#include <vector>

namespace slipstream {

class OwnClip {
 public:
  OwnClip(double limit, std::size_t buckets) : limit_(limit), usual_(buckets), now_(buckets) {}

  bool waits() const { return known_ == 0; }
  void clip(std::size_t bucket, std::span<float> grads);
  // In place of it where it waits: the whole gradient, then the norms of its buckets.
  void clip_whole(std::span<float> grads);
  void note(std::size_t bucket, std::span<const float> grads);

  void end_step();
  void visit(StateVisitor& v);

 private:
  void shorten(std::span<float> grads, double squared_norm, double limit) const;

  double limit_;
  std::vector<float> usual_, now_;  // squared norms by bucket: the running mean, and this step's
  std::int64_t known_ = 0;          // is there a mean?
};

}  // namespace slipstream
