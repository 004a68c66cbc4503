// SPDX-License-Identifier: Apache-2.0
//
// What the wire costs, measured: the time of a gather and of a sum as latency + bytes × rate. All ranks call it
// together and hold the same figures afterwards (the mean over ranks). It blocks for about a tenth of a second:
// messages are doubled in size until one takes long enough to be measured.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstddef>

namespace slipstream {

struct LinkCost {
  double latency_s = 0;
  double s_per_byte = 0;  // of what one rank contributes

  double seconds(double bytes) const { return latency_s + s_per_byte * bytes; }
};

struct LinkCosts {
  LinkCost gather, sum;
};

LinkCosts probe_link(Fabric& net);  // all zero where a worker is alone

}  // namespace slipstream
