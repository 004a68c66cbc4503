// SPDX-License-Identifier: Apache-2.0
//
// Sparse: some entries of a vector of floats. Indices ascend and are unique; values[j] belongs to indices[j]. It does
// not know the dimension of the vector it was taken from: whoever passes it on does.
#pragma once

#include <cstdint>
#include <vector>

namespace slipstream {

struct Sparse {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;

  bool operator==(const Sparse&) const = default;
};

}  // namespace slipstream
