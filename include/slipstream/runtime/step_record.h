// SPDX-License-Identifier: Apache-2.0
//
// StepRecord: what one step of one worker took. compute = forward, backward, optimizer; encode = the strategy's own
// work; exposed = blocked on the wire; the three add up to `seconds`. wire = at least one operation was on the wire.
#pragma once

#include <cstdint>
#include <string>

namespace slipstream {

struct StepRecord {
  std::int64_t t = 0;
  double loss = 0, lr = 0;
  double seconds = 0, compute_seconds = 0, encode_seconds = 0, exposed_seconds = 0, wire_seconds = 0;
  double bytes_sent = 0, bytes_received = 0;
  std::string news{};  // what the strategy decided in this step; mostly empty
};

}  // namespace slipstream
