// SPDX-License-Identifier: Apache-2.0
//
// Sparse: some entries of a vector of floats. Indices ascend and are unique; values[j] belongs to indices[j]. It does
// not store the dimension of the vector; its users know that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace slipstream {

struct Sparse {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;

  bool operator==(const Sparse&) const = default;
};

// The number of entries that a density selects from `count`: 1 … count (0 of none).
inline std::size_t entries_at(double density, std::size_t count) {
  return std::min(count, std::max<std::size_t>(1, static_cast<std::size_t>(density * static_cast<double>(count))));
}

}  // namespace slipstream
