// SPDX-License-Identifier: Apache-2.0
//
// sketch_bench: what CountSketch reaches with 5 rows of 16,384 columns, next to a memcpy of the whole vector and to the
// form that tensor libraries offer: table[index[i]] += sign[i] x[i], row by row, with the indices and signs of all
// coordinates made beforehand (of one row, used for all; that changes nothing for the time). "torch index_add_" has the
// products sign[i] x[i] ready too, "torch mul index_add_" makes them for each row as a new tensor, as one would write
// it, and "plain loop" does both in one loop of C++. Verified: planted coordinates must be found, and estimated to
// within a quarter.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <cstdint>

#include "base/rng.h"
#include "codec/count_sketch.h"
#include "micro/harness.h"

namespace slipstream {
namespace {

using bench::kFloats;

constexpr SketchShape kShape{.rows = 5, .columns = 16384, .seed = 1};
constexpr std::size_t kPlanted = 64, kFew = kFloats / 1000;
constexpr float kPlantedValue = 600.0F;  // against noise of deviation sqrt(d / columns), 39

struct Vectors {
  Vectors() {
    Rng random(7);
    for (std::size_t i = 0; i < kFloats; ++i) {
      const std::uint64_t bits = random.next();
      x[i] = static_cast<float>(static_cast<double>(bits >> 40) * 0x1.0p-23 - 1.0) * std::sqrt(3.0F);  // variance 1
      index[i] = static_cast<std::int64_t>(bits % kShape.columns);
      sign[i] = (bits >> 39 & 1U) != 0 ? 1.0F : -1.0F;
    }
    for (std::size_t p = 0; p < kPlanted; ++p) {
      planted.push_back(static_cast<std::uint32_t>(p * (kFloats / kPlanted) + p));
      x[planted.back()] = kPlantedValue;
    }
    sketch.add(0, x);
  }

  bool estimates_planted() {
    sketch.estimate(0, out);
    return std::all_of(planted.begin(), planted.end(),
                       [&](std::uint32_t i) { return std::abs(out[i] - kPlantedValue) < 0.25F * kPlantedValue; });
  }
  bool has_planted(const std::vector<std::uint32_t>& found) const {
    return std::includes(found.begin(), found.end(), planted.begin(), planted.end());
  }

  std::vector<float> x = std::vector<float>(kFloats), out = x, sign = x;
  std::vector<std::int64_t> index = std::vector<std::int64_t>(kFloats);
  std::vector<std::uint32_t> planted;
  CountSketch sketch{kShape};
};

// The three plain forms, all of them on 5 rows.
std::vector<bench::Operation> plain_forms(Vectors& v, std::size_t bytes) {
  const at::Tensor table = at::zeros({kShape.rows, static_cast<std::int64_t>(kShape.columns)});
  const at::Tensor x = at::from_blob(v.x.data(), {kFloats}), sign = at::from_blob(v.sign.data(), {kFloats});
  const at::Tensor index = at::from_blob(v.index.data(), {kFloats}, at::kLong), ready = x * sign;
  const auto index_add = [=](const auto& addends) {
    for (int row = 0; row < kShape.rows; ++row) table[row].index_add_(0, index, addends());
  };
  const auto loop = [&v, table] {
    for (int row = 0; row < kShape.rows; ++row) {
      float* cells = table[row].data_ptr<float>();
      for (std::size_t i = 0; i < kFloats; ++i) cells[v.index[i]] += v.sign[i] * v.x[i];
    }
  };
  return {{"torch index_add_", bytes, [=] { index_add([&] { return ready; }); }, {}, {}, 3},
          {"torch mul index_add_", bytes, [=] { index_add([&] { return x * sign; }); }, {}, {}, 3},
          {"plain loop", bytes, loop, {}, {}, 3}};
}

std::vector<bench::Operation> operations(Vectors& v) {
  constexpr std::size_t kCopy = 2 * kFloats * sizeof(float);
  const auto heaviest = [&v](std::size_t count) { return v.sketch.heaviest(kFloats, count); };
  const auto heavymix = [&v] { return v.sketch.heavymix(kFloats, kFew, 1); };
  const auto discard = [](const auto& indices) { benchmark::DoNotOptimize(indices); };

  std::vector<bench::Operation> all = plain_forms(v, kCopy);
  all.push_back(
      {"sketch", kCopy, [&v] { v.sketch.clear(), v.sketch.add(0, v.x); }, {all[0].name, all[1].name, all[2].name}});
  all.push_back(
      {"estimate all", kCopy, [&v] { v.sketch.estimate(0, v.out); }, {}, [&v] { return v.estimates_planted(); }});
  for (const std::size_t count : {kFew, 4 * kFew}) {
    all.push_back({fmt::format("heaviest {}", count),
                   kCopy,
                   [=] { discard(heaviest(count)); },
                   {},
                   [=, &v] { return v.has_planted(heaviest(count)); }});
  }
  all.push_back({fmt::format("heavymix {}", kFew),
                 kCopy,
                 [=] { discard(heavymix()); },
                 {},
                 [=, &v] { return v.has_planted(heavymix()); }});
  return all;
}

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) {
  at::set_num_threads(1);
  return slipstream::bench::run(argc, argv, slipstream::operations);
}
