// SPDX-License-Identifier: Apache-2.0
//
// Time, as seen by one worker. A Fabric carries its clock, so that code runs unchanged in real and in virtual time.
#pragma once

namespace slipstream {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() const = 0;  // seconds; never goes back; its zero is arbitrary
};

// The machine's monotonic clock. All processes of one machine share its zero.
class SteadyClock final : public Clock {
 public:
  double now() const override;
};

}  // namespace slipstream
