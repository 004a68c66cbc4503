// SPDX-License-Identifier: Apache-2.0
//
// vec_bench: what the kernels of base/vec.h reach, next to memcpy. Every iteration times the kernel and then memcpy
// moving as many bytes (read and written together), so both see the same machine; the table shows medians. A ratio
// of 1.00 is a kernel as fast as memcpy, 2.00 one that takes twice as long. Correctness is the unit tests' part.
//
//   vec_bench [--benchmark_filter=REGEX]
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/vec.h"

namespace slipstream {
namespace {

constexpr std::size_t kFloats = 25'000'000;
constexpr int kIterations = 15;

struct Buffers {  // written once here, so that no page is touched for the first time inside a measurement
  std::vector<float> w = std::vector<float>(kFloats, 0.5F), g = std::vector<float>(kFloats, 0.25F),
                     v = std::vector<float>(kFloats, 0.125F), u = std::vector<float>(kFloats, 0.125F),
                     from = std::vector<float>(kFloats, 1.0F), to = std::vector<float>(kFloats, 1.0F);
  std::vector<std::uint16_t> half = std::vector<std::uint16_t>(kFloats, 0x3C00);
};

struct Kernel {
  std::string name;
  std::size_t bytes_per_float;  // read and written
  std::function<void(Buffers&)> run;
};

struct Row {
  std::string name;
  double bytes, seconds, memcpy_seconds, ratio;
};

std::vector<Kernel> kernels() {
  const vec::AdamStep adam{
      .rate = 1e-6F, .beta1 = 0.9F, .one_minus_beta1 = 0.1F, .beta2 = 0.999F, .one_minus_beta2 = 0.001F, .eps = 1e-8F};
  return {
      {"fill", 4, [](Buffers& b) { vec::fill(b.w, 0.5F); }},
      {"copy", 8, [](Buffers& b) { vec::copy(b.w, b.g); }},
      {"scale", 8, [](Buffers& b) { vec::scale(b.w, -1.0F); }},
      {"add", 12, [](Buffers& b) { vec::add(b.w, b.g); }},
      {"add_scaled", 12, [](Buffers& b) { vec::add_scaled(b.w, b.g, 0.1F); }},
      {"lerp", 12, [](Buffers& b) { vec::lerp(b.w, b.g, 0.6F); }},
      {"mix", 12, [](Buffers& b) { vec::mix(b.w, 0.25F, b.g, 0.375F); }},
      {"copy_twice", 12, [](Buffers& b) { vec::copy_twice(b.v, b.u, b.w); }},
      {"rebase", 16, [](Buffers& b) { vec::rebase(b.w, b.v, b.g, 0.5F); }},
      {"subtract", 12, [](Buffers& b) { vec::subtract(b.v, b.w, b.g); }},
      {"sgd", 12, [](Buffers& b) { vec::sgd_step(b.w, b.g, {}, {.lr = 1e-6F}); }},
      {"sgd momentum", 20, [](Buffers& b) { vec::sgd_step(b.w, b.g, b.v, {.lr = 1e-6F, .momentum = 0.9F}); }},
      {"sgd nesterov", 20,
       [](Buffers& b) { vec::sgd_step(b.w, b.g, b.v, {.lr = 1e-6F, .momentum = 0.9F, .nesterov = true}); }},
      {"adam", 28, [=](Buffers& b) { vec::adam_step(b.w, b.g, b.v, b.u, adam); }},
      {"sum_of_squares", 4, [](Buffers& b) { benchmark::DoNotOptimize(vec::sum_of_squares(b.g)); }},
      {"first_nonfinite", 4, [](Buffers& b) { benchmark::DoNotOptimize(vec::first_nonfinite(b.g)); }},
      {"to_fp16", 6, [](Buffers& b) { vec::to_fp16(b.half, b.g); }},
      {"from_fp16", 6, [](Buffers& b) { vec::from_fp16(b.w, b.half); }},
      {"add_scaled_fp16", 10, [](Buffers& b) { vec::add_scaled_fp16(b.w, b.half, 0.1F); }},
      {"to_bf16", 6, [](Buffers& b) { vec::to_bf16(b.half, b.g); }},
      {"from_bf16", 6, [](Buffers& b) { vec::from_bf16(b.w, b.half); }},
      {"add_scaled_bf16", 10, [](Buffers& b) { vec::add_scaled_bf16(b.w, b.half, 0.1F); }},
      {"hash_bytes", 4,
       [](Buffers& b) { benchmark::DoNotOptimize(hash_bytes(std::as_bytes(std::span<const float>(b.g)))); }},
  };
}

// memcpy that reads and writes `traffic` bytes together, over the whole buffers again and again.
void copy_traffic(Buffers& b, std::size_t traffic) {
  for (std::size_t left = traffic / 2; left > 0;) {
    const std::size_t now = std::min(left, kFloats * sizeof(float));
    std::memcpy(b.to.data(), b.from.data(), now);
    benchmark::ClobberMemory();
    left -= now;
  }
}

template <typename F>
double seconds_of(const F& f) {
  const auto began = std::chrono::steady_clock::now();
  f();
  benchmark::ClobberMemory();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(benchmark::State& state, const Kernel& kernel, Buffers& buffers, std::vector<Row>& rows) {
  const std::size_t bytes = kernel.bytes_per_float * kFloats;
  std::vector<double> times, copies, ratios;
  kernel.run(buffers);
  for ([[maybe_unused]] auto _ : state) {
    times.push_back(seconds_of([&] { kernel.run(buffers); }));
    copies.push_back(seconds_of([&] { copy_traffic(buffers, bytes); }));
    ratios.push_back(times.back() / copies.back());
    state.SetIterationTime(times.back());
  }
  rows.push_back({kernel.name, static_cast<double>(bytes), median(times), median(copies), median(ratios)});
}

void print(const std::vector<Row>& rows) {
  fmt::print("{} floats, one thread, median of {} iterations\n\n", kFloats, kIterations);
  fmt::print("{:<16} {:>9} {:>8} {:>8} {:>13} {:>14}\n", "kernel", "bytes/flt", "ms", "GB/s", "memcpy GB/s",
             "time/memcpy");
  for (const Row& row : rows) {
    fmt::print("{:<16} {:>9} {:>8.2f} {:>8.1f} {:>13.1f} {:>14.2f}\n", row.name, row.bytes / kFloats, row.seconds * 1e3,
               row.bytes / row.seconds * 1e-9, row.bytes / row.memcpy_seconds * 1e-9, row.ratio);
  }
}

class Quiet final : public benchmark::BenchmarkReporter {  // the table at the end says it all
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) {
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  fmt::print(stderr,
             "vec_bench: this is a debug or sanitizer build, whose times mean nothing; configure with "
             "-DCMAKE_BUILD_TYPE=RelWithDebInfo and without SLIPSTREAM_SANITIZE\n");
  return 2;
#endif
  using namespace slipstream;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Buffers buffers;
  std::vector<Row> rows;
  const std::vector<Kernel> all = kernels();
  for (const Kernel& kernel : all) {
    benchmark::RegisterBenchmark(kernel.name.c_str(),
                                 [&](benchmark::State& state) { measure(state, kernel, buffers, rows); })
        ->Iterations(kIterations)
        ->UseManualTime();
  }
  Quiet quiet;
  benchmark::RunSpecifiedBenchmarks(&quiet);
  print(rows);
  return rows.empty() ? 2 : 0;
}
