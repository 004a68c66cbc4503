// SPDX-License-Identifier: Apache-2.0
#include "task/image_batch.h"

#include <slipstream/base/error.h>

#include <cmath>

namespace slipstream {

ImageBatcher::ImageBatcher(const ImageSet& train) {
  const std::int64_t area = train.height * train.width;
  for (std::int64_t c = 0; c < train.channels; ++c) {
    std::uint64_t sum = 0, squares = 0;  // whole numbers: exact, whatever the order
    for (std::int64_t i = 0; i < train.count; ++i) {
      const std::uint8_t* image = train.pixels.data() + (i * train.channels + c) * area;
      for (std::int64_t p = 0; p < area; ++p) {
        sum += image[p];
        squares += std::uint32_t{image[p]} * image[p];
      }
    }
    const double n = static_cast<double>(train.count * area);
    const double mean = static_cast<double>(sum) / n;
    const double variance = static_cast<double>(squares) / n - mean * mean;
    const double deviation = variance > 1e-6 ? std::sqrt(variance) : 1;  // images of a single colour stay finite
    scale_.push_back(static_cast<float>(1 / deviation));
    shift_.push_back(static_cast<float>(-mean / deviation));
  }
}

void ImageBatcher::gather(const ImageSet& set, std::span<const std::int64_t> samples, std::span<float> images,
                          std::span<std::int64_t> labels) const {
  const std::int64_t area = set.height * set.width;
  check(set.channels == static_cast<std::int64_t>(scale_.size()) && labels.size() == samples.size() &&
            images.size() == samples.size() * static_cast<std::size_t>(set.pixels_per_image()),
        "a batch of {} images does not fit {} floats and {} labels", samples.size(), images.size(), labels.size());
  float* to = images.data();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::uint8_t* from = set.pixels.data() + samples[i] * set.pixels_per_image();
    for (std::size_t c = 0; c < scale_.size(); ++c, from += area, to += area) {
      const float scale = scale_[c], shift = shift_[c];
      for (std::int64_t p = 0; p < area; ++p) to[p] = static_cast<float>(from[p]) * scale + shift;
    }
    labels[i] = set.labels[static_cast<std::size_t>(samples[i])];
  }
}

}  // namespace slipstream
