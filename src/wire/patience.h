// SPDX-License-Identifier: Apache-2.0
//
// Patience: when a process gives up on the others. There are two limits, because every process shows life on the wire,
// whatever its training does:
//
//   silence()   a process that shows no life for this long is lost
//   waiting()   an operation that makes no progress for this long has failed, though all show life: one of them is busy
//               with something else, or the ranks do not run the same steps
//
// Both are --timeout if the user gave it. Otherwise silence is 30 s, and waiting adapts to the job: 20 times the
// longest time between two waits, which is about a step and includes what a rank does between steps (evaluate, save),
// at least 2 min and at most an hour. Not thread-safe.
#pragma once

#include <algorithm>

namespace slipstream {

class Patience {
 public:
  static constexpr double kSilence = 30, kLeast = 120, kMost = 3600, kTimes = 20;

  explicit Patience(double given_seconds) : given_(given_seconds) {}  // 0: none was given

  double silence() const { return given_ > 0 ? given_ : kSilence; }
  double waiting() const { return given_ > 0 ? given_ : std::clamp(kTimes * longest_, kLeast, kMost); }

  void waited_until(double now) {
    if (last_ >= 0) longest_ = std::max(longest_, now - last_);
    last_ = now;
  }

 private:
  const double given_;
  double last_ = -1, longest_ = 0;
};

}  // namespace slipstream
