// SPDX-License-Identifier: Apache-2.0
//
// Chaos: faults that a run inflicts on itself (`train --chaos kills=20,freezes=2,cuts=1`), to see that it survives
// them. It only decides which fault hits which process when; the supervisor carries it out. Times and victims follow
// the seed, but also the run: a fault waits until more than the required number of workers are at work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"

namespace slipstream {

class Chaos {
 public:
  enum class Kind { kKill, kFreeze, kCut };
  struct Fault {
    Kind kind;
    int victim;  // a process, by the number it was started with
  };

  // "kills=N,freezes=M,cuts=K", each part optional; ConfigError otherwise.
  Chaos(const std::string& spec, std::uint64_t seed);

  bool cuts() const { return cuts_; }
  // The fault that is due now, if any. `running`: the processes it may hit; `spare`: how many workers may be lost now.
  std::optional<Fault> next(double now, const std::vector<int>& running, int spare);

  std::int64_t done() const { return planned_ - static_cast<std::int64_t>(left_.size()); }
  std::int64_t planned() const { return planned_; }

 private:
  static constexpr double kLeastSeconds = 0.2, kMostSeconds = 3;  // between two faults

  Rng rng_;
  std::vector<Kind> left_;  // in random order
  std::int64_t planned_ = 0;
  bool cuts_ = false;
  double due_ = -1;  // -1: not drawn yet
};

const char* name_of(Chaos::Kind kind);  // "kill"

}  // namespace slipstream
