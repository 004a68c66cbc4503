// SPDX-License-Identifier: Apache-2.0
//
// sketch_bench: what CountSketch reaches with 25 million floats and 5 rows of 16,384 columns. Every iteration times a
// kernel and then a memcpy of the whole vector, so both see the same machine; the table shows medians. "index_add" is
// the plain form that tensor libraries offer: indices and signs of all coordinates made beforehand, then
// table[index[i]] += sign[i] x[i], row by row. Verified: planted coordinates must be found each time, and estimated to
// within a quarter.
//
//   sketch_bench [FLOATS]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codec/count_sketch.h"

namespace slipstream {
namespace {

constexpr SketchShape kShape{.rows = 5, .columns = 16384, .seed = 1};
constexpr int kIterations = 11;
constexpr std::size_t kPlanted = 64;
constexpr float kPlantedValue = 600.0F;  // against noise of deviation sqrt(d / columns), 39 with 25 million floats

struct Vectors {
  explicit Vectors(std::size_t count)
      : x(count), out(count), from(count, 1.0F), to(count, 1.0F), index(count), sign(count) {
    Rng random(7);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t bits = random.next();
      x[i] = static_cast<float>(static_cast<double>(bits >> 40) * 0x1.0p-23 - 1.0) * std::sqrt(3.0F);  // variance 1
      index[i] = static_cast<std::int64_t>(bits % kShape.columns);
      sign[i] = (bits >> 39 & 1U) != 0 ? 1.0F : -1.0F;
    }
    for (std::size_t p = 0; p < kPlanted; ++p) {
      planted.push_back(static_cast<std::uint32_t>(p * (count / kPlanted) + p));
      x[planted.back()] = kPlantedValue;
    }
  }
  std::vector<float> x, out, from, to;
  std::vector<std::int64_t> index;
  std::vector<float> sign;
  std::vector<std::uint32_t> planted;
};

void index_add(const Vectors& v, std::vector<float>& table) {
  for (int row = 0; row < kShape.rows; ++row) {
    float* cells = table.data() + static_cast<std::size_t>(row) * kShape.columns;
    for (std::size_t i = 0; i < v.x.size(); ++i) cells[v.index[i]] += v.sign[i] * v.x[i];
  }
}

struct Kernel {
  std::string name;
  std::function<void()> run;
};

// The time this thread ran, not the clock's: the turns of other processes on the machine do not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds_of(const std::function<void()>& f) {
  const double began = thread_seconds();
  f();
  return thread_seconds() - began;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void copy_vector(Vectors& v) {
  std::memcpy(v.to.data(), v.from.data(), v.to.size() * sizeof(float));
  asm volatile("" : : "r"(v.to.data()) : "memory");
}

int run(std::size_t count) {
  Vectors v(count);
  CountSketch sketch(kShape);
  const std::size_t few = count / 1000;
  std::vector<float> plain(sketch.table().size());
  std::vector<std::uint32_t> found;
  const std::vector<Kernel> kernels = {
      {"index_add", [&] { index_add(v, plain); }},
      {"sketch", [&] { sketch.clear(), sketch.add(0, v.x); }},
      {"estimate all", [&] { sketch.estimate(0, v.out); }},
      {"heaviest 0.1%", [&] { found = sketch.heaviest(count, few); }},
      {"heaviest 0.4%", [&] { found = sketch.heaviest(count, 4 * few); }},
      {"heavymix 0.1%", [&] { found = sketch.heavymix(count, few, 1); }},
  };
  fmt::print("{} floats, {} rows x {} columns, one thread, median (least) of {} iterations\n\n", count, kShape.rows,
             kShape.columns, kIterations);
  fmt::print("{:<14} {:>17} {:>11} {:>12} {:>13}\n", "kernel", "ms", "ns/element", "time/memcpy", "vs index_add");
  double plain_seconds = 0;
  for (const Kernel& kernel : kernels) {
    std::vector<double> times, ratios;
    kernel.run();
    for (int i = 0; i < kIterations; ++i) {
      times.push_back(seconds_of(kernel.run));
      ratios.push_back(times.back() / seconds_of([&] { copy_vector(v); }));
    }
    const double seconds = median(times);
    if (kernel.name == "index_add") plain_seconds = seconds;
    fmt::print("{:<14} {:>8.1f} ({:>6.1f}) {:>11.3f} {:>12.2f} {:>12.1f}x\n", kernel.name, seconds * 1e3,
               *std::min_element(times.begin(), times.end()) * 1e3, seconds * 1e9 / static_cast<double>(count),
               median(ratios), plain_seconds / seconds);
    if (!found.empty() && !std::includes(found.begin(), found.end(), v.planted.begin(), v.planted.end())) {
      fmt::print(stderr, "sketch_bench: {} missed a planted coordinate; the times above mean nothing\n", kernel.name);
      return 1;
    }
  }
  double error = 0;
  for (const std::uint32_t i : v.planted)
    error = std::max(error, std::abs(static_cast<double>(v.out[i]) - kPlantedValue));
  fmt::print("\nworst error of a planted {}: {:.1f}\n", kPlantedValue, error);
  return error < 0.25 * kPlantedValue ? 0 : 1;
}

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) {
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  fmt::print(stderr,
             "sketch_bench: this is a debug or sanitizer build, whose times mean nothing; configure with "
             "-DCMAKE_BUILD_TYPE=RelWithDebInfo and without SLIPSTREAM_SANITIZE\n");
  return 2;
#endif
  const std::size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 25'000'000;
  if (argc > 2 || count < 1'000'000 || count > 25'000'000) {
    fmt::print(stderr, "usage: sketch_bench [FLOATS], 1000000 to 25000000 of them\n");
    return 2;
  }
  return slipstream::run(count);
}
