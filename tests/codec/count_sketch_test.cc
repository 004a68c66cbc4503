// SPDX-License-Identifier: Apache-2.0
//
// The table and its estimates: bit for bit against scalar loops on every instruction set, and the laws of a
// Count-Sketch over many seeds. Seeds are fixed, so the statistical bounds (about 5 deviations) hold always or never.
#include "codec/count_sketch.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/every_target.h"
#include "base/rng.h"

namespace slipstream {
namespace {

using sketch::kBlock;

std::vector<float> normal_values(std::size_t count, std::uint64_t seed) {
  Rng random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

double squared_norm(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

std::vector<float> estimates(const CountSketch& sketch, std::size_t d) {
  std::vector<float> out(d);
  sketch.estimate(0, out);
  return out;
}

CountSketch sketch_of(const SketchShape& shape, std::span<const float> x) {
  CountSketch sketch(shape);
  sketch.add(0, x);
  return sketch;
}

// The definition, one coordinate after the other.
struct Reference {
  explicit Reference(const SketchShape& s) : shape(s), table(static_cast<std::size_t>(s.rows) * s.columns) {
    Rng random(s.seed, sketch::kKeyStream);
    seed_key = random.next();
    for (int row = 0; row < s.rows; ++row) row_keys.push_back(random.next());
  }
  float sign(std::size_t row, std::size_t i) const { return place(row, i).negated(i % kBlock) ? -1.0F : 1.0F; }
  std::size_t cell(std::size_t row, std::size_t i) const {
    return row * shape.columns + place(row, i).cell(i % kBlock);
  }
  sketch::Place place(std::size_t row, std::size_t i) const {
    return sketch::place_of(sketch::hash_of_block(seed_key, i / kBlock), row_keys[row], shape.columns / kBlock);
  }
  void add(std::size_t i, float value) {
    for (std::size_t row = 0; row < row_keys.size(); ++row) table[cell(row, i)] += sign(row, i) * value;
  }
  float estimate(std::size_t i) const {
    std::vector<float> values;
    for (std::size_t row = 0; row < row_keys.size(); ++row) values.push_back(sign(row, i) * table[cell(row, i)]);
    std::sort(values.begin(), values.end());
    if (shape.estimate == sketch::Estimate::kMedian) return values[values.size() / 2] + 0.0F;
    return values.front() > 0 ? values.front() : values.back() < 0 ? values.back() : 0.0F;
  }
  SketchShape shape;
  std::vector<float> table;
  std::uint64_t seed_key = 0;
  std::vector<std::uint64_t> row_keys;
};

void expect_same_bits(std::span<const float> got, std::span<const float> want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i])) << "at " << i;
  }
}

TEST(CountSketch, EqualsTheScalarDefinitionBitForBitOnEveryTarget) {
  on_every_target([] {
    for (int n = 0; n <= sketch::kMaxRows; ++n) {  // each odd number of rows, with both rules
      const int rows = n | 1;
      const SketchShape shape{.rows = rows,
                              .columns = 48,
                              .seed = static_cast<std::uint64_t>(rows),
                              .estimate = n % 2 == 0 ? sketch::Estimate::kMin : sketch::Estimate::kMedian};
      CountSketch sketch(shape);
      Reference reference(shape);
      for (const std::size_t offset : {0U, 5U, 16U, 1003U}) {
        for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 100U, 4100U}) {  // the last is several chunks
          std::vector<float> values = normal_values(count, offset + count);
          for (std::size_t i = 0; i < count; i += 7) values[i] = i % 2 == 0 ? -0.0F : 1e-42F;
          sketch.add(offset, values);
          for (std::size_t i = 0; i < count; ++i) reference.add(offset + i, values[i]);
          expect_same_bits(sketch.table(), reference.table);
          std::vector<float> got(count), want(count);
          sketch.estimate(offset, got);
          for (std::size_t i = 0; i < count; ++i) want[i] = reference.estimate(offset + i);
          expect_same_bits(got, want);
        }
      }
    }
  });
}

TEST(CountSketch, EstimatesOfAnEmptySketchArePositiveZeros) {
  on_every_target([] {
    const CountSketch sketch({.rows = 5, .columns = 64, .seed = 1});
    expect_same_bits(estimates(sketch, 100), std::vector<float>(100, 0.0F));
  });
}

TEST(CountSketch, CutsInOrderChangeNothing) {
  const std::vector<float> x = normal_values(1000, 1);
  const SketchShape shape{.rows = 3, .columns = 128, .seed = 2};
  const CountSketch whole = sketch_of(shape, x);
  for (const std::size_t piece : {1U, 7U, 16U, 37U, 999U}) {
    CountSketch cut(shape);
    for (std::size_t first = 0; first < x.size(); first += piece) {
      cut.add(first, std::span(x).subspan(first, std::min(piece, x.size() - first)));
    }
    expect_same_bits(cut.table(), whole.table());
  }
}

TEST(CountSketch, LayersAddedLastToFirstGiveTheSameTableToRounding) {
  const std::vector<float> x = normal_values(5000, 3);
  const SketchShape shape{.rows = 5, .columns = 64, .seed = 4};
  const CountSketch whole = sketch_of(shape, x);
  CountSketch reversed(shape);
  for (std::size_t end = x.size(); end > 0;) {
    const std::size_t size = std::min<std::size_t>(end, 333);
    end -= size;
    reversed.add(end, std::span(x).subspan(end, size));
  }
  const double scale = std::sqrt(squared_norm(x));
  for (std::size_t i = 0; i < whole.table().size(); ++i) {
    ASSERT_NEAR(reversed.table()[i], whole.table()[i], 1e-6 * scale);
  }
}

TEST(CountSketch, TheSketchOfASumIsTheSumOfTheSketches) {  // GS-1
  const SketchShape shape{.rows = 5, .columns = 256, .seed = 5};
  const std::vector<float> x = normal_values(10000, 6), y = normal_values(10000, 7);
  std::vector<float> both(x.size());
  std::transform(x.begin(), x.end(), y.begin(), both.begin(), [](float a, float b) { return a + b; });
  CountSketch merged = sketch_of(shape, x);
  merged.merge(sketch_of(shape, y).table());
  const CountSketch direct = sketch_of(shape, both);
  const double scale = std::sqrt(squared_norm(both));
  for (std::size_t i = 0; i < direct.table().size(); ++i) {
    ASSERT_NEAR(merged.table()[i], direct.table()[i], 1e-6 * scale);
  }
}

TEST(CountSketch, ScaleScalesEstimatesAndClearForgets) {
  const std::vector<float> x = normal_values(200, 8);
  CountSketch sketch = sketch_of({.rows = 3, .columns = 64, .seed = 9}, x);
  const std::vector<float> before = estimates(sketch, x.size());
  const double norm = sketch.l2();
  sketch.scale(0.5F);
  const std::vector<float> after = estimates(sketch, x.size());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(after[i], 0.5F * before[i]);
  EXPECT_NEAR(sketch.l2(), 0.5 * norm, 1e-9 * norm);
  sketch.clear();
  EXPECT_EQ(sketch.l2(), 0.0);
}

TEST(CountSketch, EstimateOneEqualsEstimate) {
  const std::vector<float> x = normal_values(333, 10);
  const CountSketch sketch = sketch_of({.rows = 7, .columns = 96, .seed = 11}, x);
  const std::vector<float> all = estimates(sketch, x.size());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sketch.estimate_one(i), all[i]);
}

// In doubles and from the table alone: what the rows say of a coordinate, and what is made of it.
TEST(CountSketch, TheMinIsTheSmallestMagnitudeWhereAllRowsAgreeInSignAndElseZero) {
  for (const int rows : {1, 3, 5}) {
    const SketchShape shape{.rows = rows, .columns = 256, .seed = 20, .estimate = sketch::Estimate::kMin};
    const std::vector<float> x = normal_values(2000, 21);
    const CountSketch sketch = sketch_of(shape, x);
    const Reference reference(shape);
    const std::vector<float> got = estimates(sketch, x.size());
    std::size_t zeros = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double least = INFINITY;
      int positive = 0, negative = 0;
      for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
        const double said = static_cast<double>(reference.sign(row, i)) * sketch.table()[reference.cell(row, i)];
        least = std::min(least, std::abs(said));
        positive += said > 0 ? 1 : 0;
        negative += said < 0 ? 1 : 0;
      }
      const double want = positive == rows ? least : negative == rows ? -least : 0;
      ASSERT_EQ(static_cast<double>(got[i]), want) << i;
      ASSERT_EQ(sketch.estimate_one(i), got[i]);
      zeros += got[i] == 0.0F ? 1 : 0;
    }
    // Random signs of r rows agree once in 2^(r - 1).
    EXPECT_NEAR(static_cast<double>(zeros) / 2000, 1 - std::exp2(1 - rows), 0.1);
  }
}

TEST(CountSketch, TheMinFindsMoreOfAFewLargeCoordinatesThanTheMedian) {
  constexpr std::size_t kDimension = 50'000, kHeavy = 200;
  std::size_t found[2] = {0, 0};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Rng random(seed, 22);
    std::vector<float> x(kDimension);
    for (std::size_t n = 0; n < kHeavy; ++n) x[random.below(kDimension)] = static_cast<float>(3 + random.normal());
    for (const auto rule : {sketch::Estimate::kMedian, sketch::Estimate::kMin}) {
      const CountSketch sketch = sketch_of({.rows = 3, .columns = 2 * 208, .seed = seed, .estimate = rule}, x);
      for (const std::uint32_t i : sketch.heaviest(kDimension, 4 * kHeavy)) {
        found[rule == sketch::Estimate::kMin ? 1 : 0] += x[i] != 0.0F ? 1 : 0;
      }
    }
  }
  EXPECT_GT(static_cast<double>(found[1]), 1.1 * static_cast<double>(found[0]));
  EXPECT_GT(found[1], 20 * kHeavy * 6 / 10);
}

// The n-th key and the n-th draw of a fill must not come from the same random number.
TEST(CountSketch, HashKeysAndTheRandomFillHaveStreamsOfTheirOwn) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Rng keys(seed, sketch::kKeyStream), fill(seed, sketch::kFillStream);
    EXPECT_NE(keys.next(), fill.next());
  }
}

TEST(CountSketch, NeighboursOfABlockNeverShareACell) {
  std::vector<float> x(48);
  for (std::size_t i = 16; i < 32; ++i) x[i] = static_cast<float>(i);  // one whole block, nothing else
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const CountSketch sketch = sketch_of({.rows = 1, .columns = 16, .seed = seed}, x);  // all blocks in one line
    std::vector<float> cells(sketch.table().begin(), sketch.table().end());
    for (float& cell : cells) cell = std::abs(cell);
    std::sort(cells.begin(), cells.end());
    EXPECT_TRUE(std::equal(cells.begin(), cells.end(), x.begin() + 16));
    for (std::size_t i = 16; i < 32; ++i) EXPECT_EQ(sketch.estimate_one(i), x[i]);
  }
}

TEST(CountSketch, LinesLanesAndSignsAreUniformAndRowsIndependent) {
  constexpr std::size_t kLines = 32, kBlocks = 1 << 16;
  const Reference hashes({.rows = 3, .columns = kLines * kBlock, .seed = 12});
  for (std::size_t row = 0; row < 3; ++row) {
    std::vector<double> cells(kLines * kBlock), pairs(kLines * kLines), negated(kBlock), together(kBlock);
    for (std::size_t block = 0; block < kBlocks; ++block) {
      const sketch::Place place = hashes.place(row, block * kBlock);
      const sketch::Place other = hashes.place((row + 1) % 3, block * kBlock);
      ++cells[place.cell(0)];
      ++pairs[place.line * kLines + other.line];
      for (std::size_t lane = 0; lane < kBlock; ++lane) {
        negated[lane] += place.negated(lane) ? 1 : 0;
        together[lane] += place.negated(lane) == other.negated((lane + row) % kBlock) ? 1 : 0;
      }
    }
    const auto chi_squared = [&](const std::vector<double>& counts) {
      const double expected = static_cast<double>(kBlocks) / static_cast<double>(counts.size());
      double sum = 0;
      for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
      const double freedom = static_cast<double>(counts.size() - 1);
      return (sum - freedom) / std::sqrt(2 * freedom);
    };
    EXPECT_LT(std::abs(chi_squared(cells)), 5.0);
    EXPECT_LT(std::abs(chi_squared(pairs)), 5.0);
    for (std::size_t lane = 0; lane < kBlock; ++lane) {
      EXPECT_NEAR(negated[lane], kBlocks / 2.0, 5 * std::sqrt(kBlocks / 4.0));
      EXPECT_NEAR(together[lane], kBlocks / 2.0, 5 * std::sqrt(kBlocks / 4.0));
    }
  }
}

// Errors of the estimates of chosen coordinates, over seeds.
std::vector<std::vector<double>> errors(std::span<const float> x, int rows, std::size_t columns, std::size_t seeds,
                                        std::span<const std::size_t> coordinates) {
  std::vector<std::vector<double>> result(coordinates.size());
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const CountSketch sketch = sketch_of({.rows = rows, .columns = columns, .seed = seed}, x);
    for (std::size_t n = 0; n < coordinates.size(); ++n) {
      const std::size_t i = coordinates[n];
      result[n].push_back(static_cast<double>(sketch.estimate_one(i)) - static_cast<double>(x[i]));
    }
  }
  return result;
}

double mean_product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum / static_cast<double>(a.size());
}

constexpr std::size_t kSeeds = 4000;
constexpr std::size_t kCoordinates[] = {0, 1, 15, 16, 17, 500, 999};

TEST(CountSketch, EstimatesAreUnbiased) {
  const std::vector<float> x = normal_values(1000, 13);
  const std::vector<double> ones(kSeeds, 1.0);
  for (const int rows : {1, 5}) {
    for (const std::vector<double>& error : errors(x, rows, 64, kSeeds, kCoordinates)) {
      const double deviation = std::sqrt(mean_product(error, error) / static_cast<double>(kSeeds));
      EXPECT_LT(std::abs(mean_product(error, ones)), 5 * deviation);
    }
  }
}

TEST(CountSketch, TheVarianceOfARowIsTheNormOfOtherBlocksSquaredOverColumns) {
  const std::vector<float> x = normal_values(1000, 14);
  const auto all = errors(x, 1, 64, kSeeds, kCoordinates);
  for (std::size_t n = 0; n < all.size(); ++n) {
    const std::size_t first = kCoordinates[n] / kBlock * kBlock;
    const double own = squared_norm(std::span(x).subspan(first, std::min(kBlock, x.size() - first)));
    const double theory = (squared_norm(x) - own) / 64;
    // A variance from n samples of about normal errors has a relative deviation of sqrt(2/n): 2.2 %.
    EXPECT_NEAR(mean_product(all[n], all[n]) / theory, 1.0, 0.12);
  }
}

TEST(CountSketch, TheMedianOfFiveRowsBeatsOneRow) {
  const std::vector<float> x = normal_values(1000, 15);
  const auto one = errors(x, 1, 64, kSeeds, kCoordinates), five = errors(x, 5, 64, kSeeds, kCoordinates);
  for (std::size_t n = 0; n < one.size(); ++n) {  // the median of 5 normal numbers: 0.287 of the variance
    EXPECT_NEAR(mean_product(five[n], five[n]) / mean_product(one[n], one[n]), 0.287, 0.06);
  }
}

TEST(CountSketch, ErrorsOfAnyTwoCoordinatesAreUncorrelated) {
  const std::vector<float> x = normal_values(1000, 16);
  for (const int rows : {1, 5}) {
    const auto all = errors(x, rows, 64, kSeeds, kCoordinates);
    for (std::size_t a = 0; a < all.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        const double scale = std::sqrt(mean_product(all[a], all[a]) * mean_product(all[b], all[b]));
        EXPECT_LT(std::abs(mean_product(all[a], all[b])) / scale, 5 / std::sqrt(kSeeds))
            << "coordinates " << kCoordinates[a] << " and " << kCoordinates[b];
      }
    }
  }
}

TEST(CountSketch, EstimatesTheNorm) {  // GS-3
  const std::vector<float> x = normal_values(2000, 17);
  const double norm = std::sqrt(squared_norm(x));
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const double estimate = sketch_of({.rows = 5, .columns = 64, .seed = seed}, x).l2();
    EXPECT_NEAR(estimate / norm, 1.0, 0.5) << "seed " << seed;
    sum += estimate / norm;
  }
  EXPECT_NEAR(sum / 400, 1.0, 0.02);
}

TEST(CountSketch, TheIdentityIsExact) {  // GS-7
  const std::vector<float> x = normal_values(77, 18);
  CountSketch sketch({.rows = 1, .columns = 77, .identity = true});
  sketch.add(30, std::span(x).subspan(30));
  sketch.add(0, std::span(x).first(30));
  expect_same_bits(sketch.table(), x);
  expect_same_bits(estimates(sketch, 77), x);
  EXPECT_EQ(sketch.estimate_one(76), x[76]);
  EXPECT_NEAR(sketch.l2(), std::sqrt(squared_norm(x)), 1e-9);
  EXPECT_THROW(sketch.add(70, std::span(x).first(8)), Error);
}

TEST(CountSketch, AnotherSeedIsAnotherTable) {
  const std::vector<float> x = normal_values(100, 19);
  const CountSketch a = sketch_of({.seed = 1}, x), b = sketch_of({.seed = 2}, x);
  EXPECT_FALSE(std::equal(a.table().begin(), a.table().end(), b.table().begin()));
}

TEST(CountSketch, RefusesIllegalShapesAndNamesTheNearestLegalOne) {
  const auto message = [](const SketchShape& shape) {
    try {
      const CountSketch sketch(shape);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(message({.rows = 4}).find("such as 5"), std::string::npos);
  EXPECT_NE(message({.rows = 0}).find("such as 1"), std::string::npos);
  EXPECT_NE(message({.rows = 99}).find("such as 15"), std::string::npos);
  EXPECT_NE(message({.columns = 1000}).find("1008"), std::string::npos);
  EXPECT_NE(message({.columns = 3}).find("16"), std::string::npos);
  EXPECT_NE(message({.columns = 0}).find("0 columns"), std::string::npos);
  EXPECT_NE(message({.rows = 3, .identity = true}).find("exactly 1"), std::string::npos);
  EXPECT_EQ(message({.rows = 15, .columns = 16}), "accepted");
}

TEST(CountSketch, RefusesATableOfAnotherSize) {
  CountSketch sketch({.rows = 3, .columns = 64});
  EXPECT_THROW(sketch.merge(CountSketch({.rows = 5, .columns = 64}).table()), Error);
}

}  // namespace
}  // namespace slipstream
