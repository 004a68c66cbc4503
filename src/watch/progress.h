// SPDX-License-Identifier: Apache-2.0
//
// Progress: how far a job is, on standard error. On a terminal a bar that is redrawn, elsewhere a plain line now and
// then.
#pragma once

#include <slipstream/base/clock.h>
#include <slipstream/engine/step_record.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace slipstream {

class Progress {
 public:
  Progress(bool terminal, std::int64_t total_steps, double samples_per_step);

  // Prints at most a few times a second. The loss shown is this rank's, smoothed.
  void step(const StepRecord& record);
  void say(const std::string& line);  // prints a line of its own, above the bar
  void finish();                      // leaves the cursor on a fresh line

  // What step() shows on a terminal of so many columns, without the terminal's codes. If space is short, first the bar,
  // then the end of the text is left out.
  std::string line(std::int64_t done, double loss, double elapsed_seconds, double waiting_share,
                   std::size_t columns = 80) const;

 private:
  SteadyClock clock_;
  bool terminal_;
  std::int64_t total_steps_;
  double samples_per_step_;
  double began_;
  double last_printed_ = 0;
  double loss_ = 0;
  double exposed_seconds_ = 0, step_seconds_ = 0;
};

}  // namespace slipstream
