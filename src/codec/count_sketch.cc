// SPDX-License-Identifier: Apache-2.0
#include "codec/count_sketch.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/rng.h"
#include "base/vec.h"

namespace slipstream {
namespace {

using sketch::hash_of_block;
using sketch::kBlock;
using sketch::Place;
using sketch::place_of;

constexpr std::size_t kMaxCells = std::size_t{1} << 32;

SketchShape legal(const SketchShape& shape) {
  if (shape.columns == 0 || shape.columns > kMaxCells) {
    fail<ConfigError>("count sketch: {} columns; use {}…{}", shape.columns, kBlock, kMaxCells);
  }
  if (shape.identity) {
    if (shape.rows != 1) fail<ConfigError>("count sketch: identity with {} rows; it has exactly 1", shape.rows);
    return shape;
  }
  if (shape.rows < 1 || shape.rows > sketch::kMaxRows || shape.rows % 2 == 0) {
    const int nearest = std::clamp(shape.rows, 0, sketch::kMaxRows - 1) | 1;
    fail<ConfigError>("count sketch: {} rows; the median needs an odd number in 1…{}, such as {}", shape.rows,
                      sketch::kMaxRows, nearest);
  }
  if (shape.columns % kBlock != 0) {
    const std::size_t nearest = std::max(kBlock, (shape.columns + kBlock / 2) / kBlock * kBlock);
    fail<ConfigError>("count sketch: {} columns; coordinates are hashed in blocks of {}, so use a multiple of it: {}",
                      shape.columns, kBlock, nearest);
  }
  return shape;
}

float median_of(std::span<float> values) {
  // By insertion: safe even where a NaN makes the order meaningless.
  for (std::size_t i = 1; i < values.size(); ++i) {
    for (std::size_t j = i; j > 0 && values[j] < values[j - 1]; --j) std::swap(values[j], values[j - 1]);
  }
  return values[values.size() / 2] + 0.0F;  // -0 becomes +0
}

float agreed_min(std::span<const float> values) {
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  if (*least > 0) return *least;
  return *greatest < 0 ? *greatest : 0.0F;
}

// A range of coordinates, cut into the end of a block, whole blocks, and the beginning of a block.
struct Cut {
  Cut(std::size_t offset, std::size_t count)
      : head(std::min(count, (kBlock - offset % kBlock) % kBlock)), blocks((count - head) / kBlock) {}
  std::size_t head;
  std::size_t blocks;
};

}  // namespace

CountSketch::CountSketch(SketchShape shape) : shape_(legal(shape)) {
  Rng keys(shape_.seed, sketch::kKeyStream);
  seed_key_ = keys.next();
  for (int row = 0; row < shape_.rows; ++row) row_keys_.push_back(keys.next());
  lines_.resize((static_cast<std::size_t>(shape_.rows) * shape_.columns + kBlock - 1) / kBlock);
}

std::span<float> CountSketch::table() {
  return {reinterpret_cast<float*>(lines_.data()), static_cast<std::size_t>(shape_.rows) * shape_.columns};
}

std::span<const float> CountSketch::table() const {
  return {reinterpret_cast<const float*>(lines_.data()), static_cast<std::size_t>(shape_.rows) * shape_.columns};
}

void CountSketch::check_range(const char* operation, std::size_t offset, std::size_t count) const {
  const std::size_t end = shape_.identity ? shape_.columns : kMaxCells;
  check(offset <= end && count <= end - offset, "CountSketch::{}: {} coordinates from {} on end behind {}, the last{}",
        operation, count, offset, end, shape_.identity ? " of an identity sketch of that many columns" : " possible");
}

void CountSketch::clear() { vec::zero(table()); }

void CountSketch::add(std::size_t offset, std::span<const float> values) {
  check_range("add", offset, values.size());
  if (shape_.identity) return vec::add(table().subspan(offset, values.size()), values);
  const auto add_one = [&](std::size_t j) {
    const std::uint32_t hash = hash_of_block(seed_key_, (offset + j) / kBlock);
    const std::size_t lane = (offset + j) % kBlock;
    for (std::size_t row = 0; row < row_keys_.size(); ++row) {
      const Place place = place_of(hash, row_keys_[row], shape_.columns / kBlock);
      table()[row * shape_.columns + place.cell(lane)] += place.negated(lane) ? -values[j] : values[j];
    }
  };
  const Cut cut(offset, values.size());
  for (std::size_t j = 0; j < cut.head; ++j) add_one(j);
  sketch::add_blocks({table().data(), shape_.columns, {seed_key_, row_keys_}}, (offset + cut.head) / kBlock,
                     values.data() + cut.head, cut.blocks);
  for (std::size_t j = cut.head + cut.blocks * kBlock; j < values.size(); ++j) add_one(j);
}

void CountSketch::merge(std::span<const float> other_table) {
  check(other_table.size() == table().size(),
        "CountSketch::merge: a table of {} cells into one of {}; only sketches of one shape and seed can be added",
        other_table.size(), table().size());
  vec::add(table(), other_table);
}

void CountSketch::scale(float factor) { vec::scale(table(), factor); }

float CountSketch::estimate_one(std::size_t i) const {
  check_range("estimate_one", i, 1);
  if (shape_.identity) return table()[i] + 0.0F;
  std::array<float, sketch::kMaxRows> values;
  const std::uint32_t hash = hash_of_block(seed_key_, i / kBlock);
  const std::size_t lane = i % kBlock;
  for (std::size_t row = 0; row < row_keys_.size(); ++row) {
    const Place place = place_of(hash, row_keys_[row], shape_.columns / kBlock);
    const float cell = table()[row * shape_.columns + place.cell(lane)];
    values[row] = place.negated(lane) ? -cell : cell;
  }
  const auto all = std::span(values).first(row_keys_.size());
  return shape_.estimate == sketch::Estimate::kMin ? agreed_min(all) : median_of(all);
}

void CountSketch::estimate(std::size_t offset, std::span<float> out) const {
  check_range("estimate", offset, out.size());
  if (shape_.identity) {
    std::transform(table().begin() + static_cast<std::ptrdiff_t>(offset),
                   table().begin() + static_cast<std::ptrdiff_t>(offset + out.size()), out.begin(),
                   [](float cell) { return cell + 0.0F; });
    return;
  }
  const Cut cut(offset, out.size());
  for (std::size_t j = 0; j < cut.head; ++j) out[j] = estimate_one(offset + j);
  sketch::estimate_blocks(cells(), shape_.estimate, (offset + cut.head) / kBlock, out.data() + cut.head, cut.blocks);
  for (std::size_t j = cut.head + cut.blocks * kBlock; j < out.size(); ++j) out[j] = estimate_one(offset + j);
}

double CountSketch::l2_squared() const {
  std::vector<double> squares;
  for (std::size_t row = 0; row < row_keys_.size(); ++row) {
    squares.push_back(vec::sum_of_squares(table().subspan(row * shape_.columns, shape_.columns)));
  }
  std::nth_element(squares.begin(), squares.begin() + static_cast<std::ptrdiff_t>(squares.size() / 2), squares.end());
  return squares[squares.size() / 2];
}

double CountSketch::l2() const { return std::sqrt(l2_squared()); }

}  // namespace slipstream
