// SPDX-License-Identifier: Apache-2.0
//
// The adaptive part of LAGS: how the layers are grouped into messages and how many entries of each are sent, from the
// times that were measured. A pure function: ranks that agree on the times agree on the plan. Layers stand in the order
// in which backward reaches them; the last one to be reached is the model's first.
//
// A group takes the largest number of entries whose message still hides behind the backward pass of the layer after it,
// between a floor (`density`) and a ceiling (`max_density`); where the whole layer hides, or would cost no more than
// its floor, it is sent dense. The wire hides; the processor's work on every entry does not, so above the floor that
// work may take only a small share of the time the message hides behind. The last group has nothing to hide behind and
// gets the floor (section 3 of the paper). Then neighbours are merged where waiting for the second is cheaper than a
// message of its own (OMGS-SGD, S. Shi et al., INFOCOM 2020).
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "topology/link_probe.h"

namespace slipstream {

// Layers [first_layer, end_layer) of the backward order, as one message.
struct LagsGroup {
  std::size_t first_layer = 0, end_layer = 0;
  std::size_t count = 0;    // elements
  std::size_t entries = 0;  // of them are sent; all: dense

  bool dense() const { return entries == count; }
  bool operator==(const LagsGroup&) const = default;
};

struct LagsTimes {
  std::vector<std::size_t> counts;  // by layer
  std::vector<double> backward_s;   // by layer: from the gradient before it to its own
  double select_s_per_element = 0;
  double entry_s = 0;  // of the processor, for one more entry: to take it, to pack it, to add what all ranks sent
  LinkCosts link;
};

struct LagsLimits {
  double density = 0.01, max_density = 0.25;
  // Bytes of a record of k entries of a layer of `count` elements.
  std::function<double(std::size_t k, std::size_t count)> record_bytes;
};

std::vector<LagsGroup> plan_lags(const LagsTimes& times, const LagsLimits& limits);

// Without measurements: layers are merged until a group has `merge_elements`.
std::vector<LagsGroup> fill_groups(const std::vector<std::size_t>& counts, std::size_t merge_elements,
                                   const std::function<std::size_t(std::size_t count)>& entries);

}  // namespace slipstream
