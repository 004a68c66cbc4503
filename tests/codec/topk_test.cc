// SPDX-License-Identifier: Apache-2.0
//
// Every selection against a full sort, bit for bit, on every instruction set this processor has.
#include "codec/topk.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/every_target.h"
#include "base/rng.h"

namespace slipstream {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

const std::vector<std::string> kDistributions = {"normal",    "heavy-tailed", "constant", "few distinct",
                                                 "ascending", "descending",   "spike",    "zeros of both signs",
                                                 "denormal",  "clumps"};

std::vector<float> values_of(const std::string& distribution, std::size_t size, std::uint64_t seed) {
  Rng rng(seed, size);
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    const double sign = rng.below(2) == 0 ? 1.0 : -1.0;
    double x = rng.normal();
    if (distribution == "heavy-tailed") x = x * x * x * x * x;
    if (distribution == "constant") x = sign * 0.75;
    if (distribution == "few distinct") x = sign * static_cast<double>(rng.below(4));
    if (distribution == "ascending") x = sign * static_cast<double>(i);
    if (distribution == "descending") x = sign * static_cast<double>(size - i);
    if (distribution == "spike") x = i == size / 3 ? 1e6 : 1e-3 * x;
    if (distribution == "zeros of both signs") x = sign * 0.0;
    if (distribution == "denormal") x = x * 1e-41;
    if (distribution == "clumps") x = Rng(seed, i / 32).below(40) == 0 ? 100 * x : x;
    values[i] = static_cast<float>(x);
  }
  return values;
}

std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), [](float x) { return std::bit_cast<std::uint32_t>(x); });
  return bits;
}

void expect_same(const Sparse& got, const Sparse& want) {
  ASSERT_EQ(got.indices, want.indices);
  ASSERT_EQ(bits_of(got.values), bits_of(want.values));
}

// accumulate_and_take, take and pick on these inputs, with an object that has seen other sizes before.
void expect_exact(TopK& topk, const std::vector<float>& residual, const std::vector<float>& grad, float scale,
                  std::size_t k) {
  std::vector<float> accumulated(residual.size());
  for (std::size_t i = 0; i < residual.size(); ++i) accumulated[i] = residual[i] + scale * grad[i];
  const Sparse want = topk_reference(accumulated, k);
  std::vector<float> left = accumulated;
  for (const std::uint32_t index : want.indices) left[index] = 0.0F;

  on_every_target([&] {
    Sparse got;
    std::vector<float> fused = residual;
    topk.accumulate_and_take(fused, grad, scale, k, got);
    expect_same(got, want);
    ASSERT_EQ(bits_of(fused), bits_of(left));

    std::vector<float> taken = accumulated;
    topk.take(taken, k, got);
    expect_same(got, want);
    ASSERT_EQ(bits_of(taken), bits_of(left));

    taken = accumulated;
    topk.pick(taken, k, got);
    expect_same(got, want);
    ASSERT_EQ(bits_of(taken), bits_of(accumulated));
  });
}

TEST(TopK, KeepsTheKLargestByMagnitude) {
  const std::vector<float> values = {0.5F, -4.0F, 3.0F, -0.25F, 2.0F};
  Sparse out;
  TopK().pick(values, 2, out);
  EXPECT_EQ(out.indices, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(out.values, (std::vector<float>{-4.0F, 3.0F}));
}

TEST(TopK, GivesTiesToTheLowerIndex) {
  const std::vector<float> values = {1.0F, -2.0F, 2.0F, -1.0F, 2.0F};
  Sparse out;
  TopK().pick(values, 4, out);
  EXPECT_EQ(out.indices, (std::vector<std::uint32_t>{0, 1, 2, 4}));
  TopK().pick(values, 2, out);
  EXPECT_EQ(out.indices, (std::vector<std::uint32_t>{1, 2}));
}

TEST(TopK, EqualsAFullSortForSmallSizes) {
  TopK topk;
  for (const std::string& distribution : kDistributions) {
    for (const std::size_t size : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 1000, 4999}) {
      const std::vector<float> residual = values_of(distribution, size, 1);
      const std::vector<float> grad = values_of(distribution, size, 2);
      for (const std::size_t k : {std::size_t{0}, std::size_t{1}, size / 100, size / 10, size / 2, size - 1, size}) {
        if (k > size) continue;
        SCOPED_TRACE(distribution + ", " + std::to_string(k) + " of " + std::to_string(size));
        ASSERT_NO_FATAL_FAILURE(expect_exact(topk, residual, grad, -0.3F, k));
      }
    }
  }
}

TEST(TopK, EqualsAFullSortWhereAThresholdIsSampled) {
  TopK topk;
  for (const std::string& distribution : kDistributions) {
    for (const std::size_t size : {65'536, 100'001}) {
      const std::vector<float> residual = values_of(distribution, size, 3);
      const std::vector<float> grad = values_of("normal", size, 4);
      const float scale = distribution == "denormal" ? 1e-41F : distribution == "constant" ? 0.0F : 0.1F;
      for (const std::size_t k : {std::size_t{1}, size / 1000, size / 10}) {
        SCOPED_TRACE(distribution + ", " + std::to_string(k) + " of " + std::to_string(size));
        ASSERT_NO_FATAL_FAILURE(expect_exact(topk, residual, grad, scale, k));
      }
    }
  }
}

// The large values lie in clumps as long as what is sampled together, and there is one too few of them: in many of
// these inputs the sample sees so many that its threshold leaves fewer than k candidates.
TEST(TopK, RepairsAThresholdThatLeftTooFew) {
  constexpr std::size_t kSize = 70'001;
  constexpr std::size_t kClumps = 32;
  constexpr std::size_t kClump = 32;
  TopK topk;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<float> values = values_of("normal", kSize, seed);
    Rng rng(seed);
    for (std::size_t clump = 0; clump < kClumps; ++clump) {
      const std::size_t begin = rng.below(kSize - kClump);
      for (std::size_t i = begin; i < begin + kClump; ++i) values[i] = 1000.0F + static_cast<float>(i % 7);
    }
    const Sparse want = topk_reference(values, kClumps * kClump + 1);
    Sparse got;
    topk.pick(values, kClumps * kClump + 1, got);
    ASSERT_NO_FATAL_FAILURE(expect_same(got, want));
  }
}

TEST(TopK, ConservesWhatWasAccumulatedOverManySteps) {
  constexpr std::size_t kSize = 3001;
  TopK topk;
  std::vector<float> residual(kSize, 0.0F);
  for (std::uint64_t step = 0; step < 200; ++step) {
    const std::vector<float> grad = values_of(step % 2 == 0 ? "normal" : "heavy-tailed", kSize, step);
    std::vector<float> accumulated(kSize);
    for (std::size_t i = 0; i < kSize; ++i) accumulated[i] = residual[i] + 0.1F * grad[i];
    Sparse sent;
    topk.accumulate_and_take(residual, grad, 0.1F, 1 + step % 50, sent);
    ASSERT_EQ(sent.indices.size(), 1 + step % 50);
    std::vector<float> sum = residual;
    for (std::size_t j = 0; j < sent.indices.size(); ++j) {
      ASSERT_EQ(residual[sent.indices[j]], 0.0F);
      sum[sent.indices[j]] = sent.values[j];
    }
    ASSERT_EQ(bits_of(sum), bits_of(accumulated)) << "step " << step;
  }
}

TEST(TopK, ContractsByAtLeastTheShareItTakes) {
  TopK topk;
  for (const std::string& distribution : kDistributions) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const std::size_t size = 1 + Rng(seed).below(5000);
      const std::size_t k = Rng(seed, 1).below(size + 1);
      std::vector<float> values = values_of(distribution, size, seed);
      const auto norm = [&] {
        double sum = 0;
        for (const float x : values) sum += static_cast<double>(x) * static_cast<double>(x);
        return sum;
      };
      const double before = norm();
      Sparse out;
      topk.take(values, k, out);
      const double share = static_cast<double>(k) / static_cast<double>(size);
      EXPECT_LE(norm(), (1.0 - share) * before * (1 + 1e-12)) << distribution << ", " << k << " of " << size;
    }
  }
}

TEST(TopK, SelectsAnOverflowFirstAndEndsWithANan) {
  std::vector<float> residual(100'000, 1.0F);
  std::vector<float> grad(residual.size(), 1.0F);
  residual[77'777] = 3e38F;
  grad[77'777] = 3e38F;
  residual[5] = -3e38F;
  grad[5] = -3e38F;
  on_every_target([&] {
    std::vector<float> values = residual;
    Sparse out;
    TopK().accumulate_and_take(values, grad, 1.0F, 2, out);
    EXPECT_EQ(out.indices, (std::vector<std::uint32_t>{5, 77'777}));
    EXPECT_EQ(out.values, (std::vector<float>{-kInf, kInf}));

    values = std::vector<float>(100'000, std::numeric_limits<float>::quiet_NaN());
    TopK().take(values, 3, out);
    EXPECT_EQ(out.indices, (std::vector<std::uint32_t>{0, 1, 2}));
  });
}

TEST(TopK, RefusesMoreEntriesThanThereAre) {
  std::vector<float> values(3, 1.0F);
  const std::vector<float> shorter(2, 1.0F);
  Sparse out;
  EXPECT_THROW(TopK().take(values, 4, out), Error);
  EXPECT_THROW(TopK().accumulate_and_take(values, shorter, 1.0F, 1, out), Error);
  EXPECT_THROW(TopK().pick({values.data(), (std::size_t{1} << 32) + 1}, 1, out), Error);
  EXPECT_EQ(values, std::vector<float>(3, 1.0F));
}

// ThreadSanitizer's shadow of such a range does not fit into memory; the other builds run this.
#ifndef __SANITIZE_THREAD__
// Eight GiB of zeros that the kernel maps to one page, with a few values in them.
TEST(TopK, FindsIndicesBeyondTwoToThe31) {
  constexpr std::size_t kSize = (std::size_t{1} << 31) + 4099;
  void* const memory =
      mmap(nullptr, kSize * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  madvise(memory, kSize * sizeof(float), MADV_HUGEPAGE);
  const std::span<float> values(static_cast<float*>(memory), kSize);
  values[1] = 1.0F;
  values[(std::size_t{1} << 31) + 5] = -3.0F;
  values[kSize - 1] = 2.0F;
  Sparse out;
  TopK().take(values, 3, out);
  EXPECT_EQ(out.indices, (std::vector<std::uint32_t>{1, (1U << 31) + 5, static_cast<std::uint32_t>(kSize - 1)}));
  EXPECT_EQ(out.values, (std::vector<float>{1.0F, -3.0F, 2.0F}));
  EXPECT_EQ(values[kSize - 1], 0.0F);
  munmap(memory, kSize * sizeof(float));
}
#endif

}  // namespace
}  // namespace slipstream
