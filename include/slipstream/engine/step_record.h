// SPDX-License-Identifier: Apache-2.0
//
// StepRecord: what one step of one worker took. compute = forward and backward; update = the optimizer; encode = the
// strategy's own work; exposed = blocked on the wire. The four add up to `seconds`. wire = time with at least one
// operation on the wire; it overlaps the others. background_… = the same for the background lane alone.
#pragma once

#include <cstdint>
#include <string>

namespace slipstream {

struct StepRecord {
  std::int64_t t = 0;
  double loss = 0, lr = 0;
  double seconds = 0, compute_seconds = 0, update_seconds = 0, encode_seconds = 0, exposed_seconds = 0;
  double wire_seconds = 0;
  double background_wire_seconds = 0, background_exposed_seconds = 0;
  double bytes_sent = 0, bytes_received = 0;
  std::string news{};  // what the strategy decided in this step; mostly empty

  // What the step would have taken without other workers: compute and update.
  double useful_seconds() const { return compute_seconds + update_seconds; }
  bool operator==(const StepRecord&) const = default;
};

}  // namespace slipstream
