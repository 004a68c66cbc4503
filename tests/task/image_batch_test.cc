// SPDX-License-Identifier: Apache-2.0
#include "task/image_batch.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <numeric>

namespace slipstream {
namespace {

// Two channels of very different brightness.
ImageSet example(std::int64_t count) {
  ImageSet set{.count = count, .channels = 2, .height = 3, .width = 4, .classes = 10, .pixels = {}, .labels = {}};
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t p = 0; p < 12; ++p) set.pixels.push_back(static_cast<std::uint8_t>((i * 7 + p * 5) % 30));
    for (std::int64_t p = 0; p < 12; ++p) set.pixels.push_back(static_cast<std::uint8_t>(100 + (i * 3 + p * 11) % 150));
    set.labels.push_back(static_cast<std::uint8_t>(i % 10));
  }
  return set;
}

TEST(ImageBatcher, GivesEachChannelOfTheTrainSetMeanZeroAndDeviationOne) {
  const ImageSet set = example(500);
  std::vector<std::int64_t> samples(500), labels(500);
  std::iota(samples.begin(), samples.end(), 0);
  std::vector<float> images(set.pixels.size());
  ImageBatcher(set).gather(set, samples, images, labels);
  for (std::size_t channel = 0; channel < 2; ++channel) {
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < images.size(); ++i) {
      if (i / 12 % 2 != channel) continue;
      sum += images[i];
      squares += images[i] * images[i];
    }
    EXPECT_NEAR(sum / 6000, 0, 1e-5);
    EXPECT_NEAR(squares / 6000, 1, 1e-5);
  }
}

TEST(ImageBatcher, TakesTheChosenImagesInTheirOrder) {
  const ImageSet set = example(20);
  const ImageBatcher batcher(set);
  std::vector<float> one(24), many(72);
  std::vector<std::int64_t> label(1), labels(3);
  const std::vector<std::int64_t> samples = {17, 3, 17};
  batcher.gather(set, samples, many, labels);
  EXPECT_EQ(labels, (std::vector<std::int64_t>{7, 3, 7}));
  for (std::size_t i = 0; i < 3; ++i) {
    batcher.gather(set, std::span(samples).subspan(i, 1), one, label);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), many.begin() + static_cast<std::ptrdiff_t>(24 * i)));
    EXPECT_EQ(label[0], labels[i]);
  }
}

TEST(ImageBatcher, ImagesOfOneColourBecomeZero) {
  ImageSet set = example(5);
  std::fill(set.pixels.begin(), set.pixels.end(), std::uint8_t{201});
  std::vector<float> image(24, 1.0f);
  std::vector<std::int64_t> label(1);
  const std::vector<std::int64_t> samples = {2};
  ImageBatcher(set).gather(set, samples, image, label);
  for (const float value : image) EXPECT_EQ(value, 0.0f);
}

TEST(ImageBatcher, RefusesMemoryOfAnotherSize) {
  const ImageSet set = example(5);
  std::vector<float> image(23);
  std::vector<std::int64_t> label(1);
  const std::vector<std::int64_t> samples = {2};
  EXPECT_THROW(ImageBatcher(set).gather(set, samples, image, label), Error);
}

}  // namespace
}  // namespace slipstream
