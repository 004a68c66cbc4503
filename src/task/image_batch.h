// SPDX-License-Identifier: Apache-2.0
//
// ImageBatcher: bytes of chosen images → floats of a batch, normalised per channel so that the train set has mean 0 and
// deviation 1 (the test set is treated with the train set's numbers). It writes to memory of the caller and keeps
// nothing but two numbers per channel.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "task/image_set.h"

namespace slipstream {

class ImageBatcher {
 public:
  explicit ImageBatcher(const ImageSet& train);

  // images and labels must have exactly the room of samples.size() images of the set.
  void gather(const ImageSet& set, std::span<const std::int64_t> samples, std::span<float> images,
              std::span<std::int64_t> labels) const;

 private:
  std::vector<float> scale_, shift_;  // a pixel p of channel c becomes p * scale_[c] + shift_[c]
};

}  // namespace slipstream
