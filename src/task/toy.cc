// SPDX-License-Identifier: Apache-2.0
#include "task/toy.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/rng.h"

namespace slipstream {
namespace {

// The purpose of a stream of random numbers; part of its key, so that no two streams are the same.
enum Stream : std::uint64_t { kTarget = 1, kNoise, kWeights, kCentres, kBatch };

// The number of rows of the squarest matrix with `count` elements.
std::size_t near_square_rows(std::size_t count) {
  std::size_t rows = 1;
  for (std::size_t r = 1; r * r <= count; ++r) {
    if (count % r == 0) rows = r;
  }
  return rows;
}

// The transpose of a matrix with this many columns.
std::vector<float> transposed(std::span<const float> matrix, std::size_t columns) {
  const std::size_t rows = matrix.size() / columns;
  std::vector<float> other(matrix.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) other[c * rows + r] = matrix[r * columns + c];
  }
  return other;
}

}  // namespace

QuadraticTask::QuadraticTask(const QuadraticOptions& options)
    : options_(options), count_(std::accumulate(options.layers.begin(), options.layers.end(), std::size_t{0})) {}

std::vector<Parameter> QuadraticTask::parameters() const {
  std::vector<Parameter> layers;
  for (std::size_t i = 0; i < options_.layers.size(); ++i) {
    const std::size_t count = options_.layers[i];
    layers.push_back({"layer" + std::to_string(i), count, near_square_rows(count)});
  }
  return layers;
}

void QuadraticTask::init(std::span<float> weights, std::uint64_t seed) const {
  Rng rng(seed, kWeights);
  for (float& w : weights) w = static_cast<float>(rng.uniform(-1, 1));
}

double QuadraticTask::curvature(std::size_t j) const { return 0.3 + 0.1 * static_cast<double>(j % 7); }

double QuadraticTask::target(int rank, std::size_t j) const {
  return Rng(options_.seed, kTarget, options_.same_data ? 0 : static_cast<std::uint64_t>(rank), j).uniform(-1, 1);
}

double QuadraticTask::gradient(std::span<const float> weights, std::span<float> grads, int rank, std::int64_t t) const {
  check(weights.size() == count_ && grads.size() == count_, "a quadratic of {} weights got {} weights and {} gradients",
        count_, weights.size(), grads.size());
  const int data_rank = options_.same_data ? 0 : rank;
  Rng noise(options_.seed, kNoise, static_cast<std::uint64_t>(data_rank), static_cast<std::uint64_t>(t));
  double loss = 0.0;
  for (std::size_t j = 0; j < count_; ++j) {
    const double away = weights[j] - target(data_rank, j);
    loss += 0.5 * curvature(j) * away * away;
    const double error = options_.noise == 0.0 ? 0.0 : options_.noise * noise.normal();
    grads[j] = static_cast<float>(curvature(j) * away + error);
  }
  return loss;
}

MlpTask::MlpTask(const MlpOptions& options) : options_(options), centres_(options.classes * options.inputs) {
  if (std::min({options.inputs, options.hidden, options.classes, options.batch}) == 0) {
    fail<ConfigError>("a toy MLP of {} inputs, {} hidden units, {} classes and batches of {}: none may be 0",
                      options.inputs, options.hidden, options.classes, options.batch);
  }
  Rng rng(options.seed, kCentres);
  for (double& x : centres_) x = rng.normal();
}

std::vector<Parameter> MlpTask::parameters() const {
  return {{"fc1.weight", options_.hidden * options_.inputs, options_.hidden},
          {"fc1.bias", options_.hidden},
          {"fc2.weight", options_.classes * options_.hidden, options_.classes},
          {"fc2.bias", options_.classes}};
}

void MlpTask::init(std::span<float> weights, std::uint64_t seed) const {
  Rng rng(seed, kWeights);
  const std::size_t first_layer = options_.hidden * (options_.inputs + 1);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(i < first_layer ? options_.inputs : options_.hidden));
    weights[i] = static_cast<float>(rng.uniform(-bound, bound));
  }
}

double MlpTask::gradient(std::span<const float> weights, std::span<float> grads, int rank, std::int64_t t) const {
  const auto [inputs, hidden, classes, batch] =
      std::tuple(options_.inputs, options_.hidden, options_.classes, options_.batch);
  const std::size_t b1 = hidden * inputs, w2 = b1 + hidden, b2 = w2 + classes * hidden, count = b2 + classes;
  check(weights.size() == count && grads.size() == count, "a toy MLP of {} weights got {} weights and {} gradients",
        count, weights.size(), grads.size());
  const auto data_rank = static_cast<std::uint64_t>(options_.same_data ? 0 : rank);
  Rng rng(options_.seed, kBatch, data_rank, static_cast<std::uint64_t>(t));
  std::vector<double> x(inputs), h(hidden), dh(hidden), p(classes), total(count);
  // Transposed, so that the inner loops run over units, whose sums are independent. The sum of one unit is a chain of
  // additions.
  const std::vector<float> into_hidden = transposed(weights.first(b1), inputs);
  const std::vector<float> into_classes = transposed(weights.subspan(w2, classes * hidden), hidden);
  double loss = 0.0;
  for (std::size_t sample = 0; sample < batch; ++sample) {
    const std::size_t label = rng.below(classes);
    for (std::size_t i = 0; i < inputs; ++i) x[i] = centres_[label * inputs + i] + options_.spread * rng.normal();

    std::copy_n(weights.begin() + static_cast<std::ptrdiff_t>(b1), hidden, h.begin());
    for (std::size_t i = 0; i < inputs; ++i) {
      for (std::size_t j = 0; j < hidden; ++j) h[j] += into_hidden[i * hidden + j] * x[i];
    }
    for (double& unit : h) unit = std::tanh(unit);
    std::copy_n(weights.begin() + static_cast<std::ptrdiff_t>(b2), classes, p.begin());
    for (std::size_t j = 0; j < hidden; ++j) {
      for (std::size_t c = 0; c < classes; ++c) p[c] += into_classes[j * classes + c] * h[j];
    }
    const double highest = *std::max_element(p.begin(), p.end());
    double norm = 0.0;
    for (double& logit : p) norm += logit = std::exp(logit - highest);
    for (double& probability : p) probability /= norm;
    loss -= std::log(p[label]);

    std::fill(dh.begin(), dh.end(), 0.0);
    for (std::size_t c = 0; c < classes; ++c) {
      const double d = p[c] - (c == label ? 1.0 : 0.0);
      total[b2 + c] += d;
      for (std::size_t j = 0; j < hidden; ++j) {
        total[w2 + c * hidden + j] += d * h[j];
        dh[j] += d * weights[w2 + c * hidden + j];
      }
    }
    for (std::size_t j = 0; j < hidden; ++j) {
      const double d = dh[j] * (1.0 - h[j] * h[j]);
      total[b1 + j] += d;
      for (std::size_t i = 0; i < inputs; ++i) total[j * inputs + i] += d * x[i];
    }
  }
  const auto samples = static_cast<double>(batch);
  for (std::size_t i = 0; i < count; ++i) grads[i] = static_cast<float>(total[i] / samples);
  return loss / samples;
}

}  // namespace slipstream
