// SPDX-License-Identifier: Apache-2.0
//
// CountSketch: a long vector seen through a small table of rows × columns floats. Each row adds every coordinate, with
// a random sign, to one random cell; the median over the rows of (sign × cell) estimates a coordinate, or their min,
// which finds large ones with fewer false alarms (Estimate, codec/sketch_kernels.h). The table is linear: the sketch of
// a sum is the sum of the sketches, so the large coordinates of a sum over workers are found from the summed tables
// alone, even where they are large on no single worker.
//
// Error of one row's estimate of x_i: mean 0, variance (|x|² - |x_B|²) / columns, x_B the 16 coordinates of i's block.
// Neighbours are hashed in aligned blocks of 16 (codec/sketch_kernels.h says how), so that a row is updated by vector
// adds in cache. What that changes: two coordinates of one block never share a cell of a row; coordinates of different
// blocks do with probability 1 / columns, as under independent hashing. All signs are independent, so the errors of any
// two coordinates are uncorrelated and the moments above and those of l2() are the textbook's. But the sizes of
// neighbours' errors are not independent: a block that meets a heavy block meets it in all 16 lanes, so bad estimates
// come in runs of neighbours.
//
// Invariant: the table depends only on the shape and on the values added. It is the same on every processor, bit for
// bit; cutting the vector differently or adding the pieces in another order changes only the rounding. Workers with
// equal shapes hold tables that may be summed, and equal tables give equal answers, bit for bit.
//
// It does not check for infinities and NaN: one of them spoils every estimate that shares a cell with it, and answers
// are then unspecified (but in range). Check before adding. At most 2^32 coordinates. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/sketch_kernels.h"
#include "codec/sparse.h"

namespace slipstream {

struct SketchShape {
  int rows = 5;                 // odd, 1…15; more rows make a large error rarer
  std::size_t columns = 16384;  // a multiple of 16; the error shrinks with its square root
  std::uint64_t seed = 0;       // the same on all workers
  bool identity = false;        // one row, cell i holds coordinate i as it is (any columns): exact, for comparisons
  sketch::Estimate estimate = sketch::Estimate::kMedian;  // does not change the table
};

class CountSketch {
 public:
  explicit CountSketch(SketchShape shape);  // all cells 0; ConfigError where the shape is not legal

  const SketchShape& shape() const { return shape_; }
  // rows × columns cells, row after row: what travels and is summed.
  std::span<float> table();
  std::span<const float> table() const;

  void clear();
  // Adds values[j] as coordinate offset + j. Layers may be added as they become ready; cuts may fall inside blocks.
  void add(std::size_t offset, std::span<const float> values);
  // Adds the table of a sketch of the same shape.
  void merge(std::span<const float> other_table);
  void scale(float factor);

  // out[j] = estimate of coordinate offset + j; a zero is always +0.
  void estimate(std::size_t offset, std::span<float> out) const;
  float estimate_one(std::size_t i) const;
  // The norm of what was added: the root of the median of the rows' sums of squares.
  double l2() const;

  // Of coordinates 0 … d-1 the `count` (all, where there are fewer) with the largest squared estimates, the lower index
  // first among equals. Exact; memory for about 3 count entries, not for d floats. Indices in ascending order.
  std::vector<std::uint32_t> heaviest(std::size_t d, std::size_t count) const;

  // HEAVYMIX (Sketched-SGD, algorithm 2): of coordinates 0 … d-1 those with estimate² >= l2² / k, at most the k
  // heaviest of them, filled up to min(k, d) with coordinates drawn uniformly from the others. The random fill is what
  // makes the selection a contraction: E|x - x_K|² <= (1 - k/d) |x|² whatever the estimates. The same rng_seed on all
  // workers and a new one each step. Indices in ascending order.
  std::vector<std::uint32_t> heavymix(std::size_t d, std::size_t k, std::uint64_t rng_seed) const;

 private:
  struct alignas(64) Line {  // makes the vector's memory start on a cache line
    float cells[sketch::kBlock];
  };

  void check_range(const char* operation, std::size_t offset, std::size_t count) const;
  double l2_squared() const;
  Sparse largest(std::size_t d, std::size_t count) const;  // the heaviest with their estimates
  sketch::Table<const float> cells() const { return {table().data(), shape_.columns, {seed_key_, row_keys_}}; }

  SketchShape shape_;
  std::uint64_t seed_key_ = 0;
  std::vector<std::uint64_t> row_keys_;
  std::vector<Line> lines_;
};

}  // namespace slipstream
