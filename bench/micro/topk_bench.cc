// SPDX-License-Identifier: Apache-2.0
//
// topk_bench: what TopK and the sparse payload reach, next to memcpy. Every iteration times the operation and then a
// memcpy moving as many bytes (read and written together), so both see the same machine; the table shows medians. The
// bytes of a selection are those of one pass over the vector; those of a payload are its own, in and out. Every
// selection timed is compared with the selection by a full sort of the same values once, before it is timed.
//
//   topk_bench [--benchmark_filter=REGEX]
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codec/sparse_payload.h"
#include "codec/topk.h"

namespace slipstream {
namespace {

constexpr std::size_t kFloats = 25'000'000;
constexpr int kIterations = 15;
constexpr float kScale = 0.5F;

struct Bench {  // written once here, so that no page is touched for the first time inside a measurement
  std::vector<float> residual = std::vector<float>(kFloats), grad = std::vector<float>(kFloats),
                     from = std::vector<float>(kFloats, 1.0F), to = std::vector<float>(kFloats, 1.0F);
  TopK topk;
  Sparse taken;
  std::vector<std::byte> payload;

  Bench() {
    Rng rng(1);
    for (std::size_t i = 0; i < kFloats; ++i) grad[i] = static_cast<float>(rng.normal());
    std::reverse_copy(grad.begin(), grad.end(), residual.begin());
  }

  void select(std::size_t k) { topk.accumulate_and_take(residual, grad, kScale, k, taken); }

  // One checked selection. The residual goes on from there, as in training.
  bool selects_exactly(std::size_t k) {
    std::vector<float> accumulated(kFloats);
    for (std::size_t i = 0; i < kFloats; ++i) accumulated[i] = residual[i] + kScale * grad[i];
    select(k);
    return taken == topk_reference(accumulated, k);
  }
};

struct Operation {
  std::string name;
  std::size_t k;
  std::function<std::size_t(Bench&)> prepare;  // returns the bytes that the operation reads and writes; 0: it is wrong
  std::function<void(Bench&)> run;
};

struct Row {
  std::string name;
  double bytes, seconds, memcpy_seconds, ratio;
};

std::vector<Operation> operations() {
  using namespace sparse_payload;
  std::vector<Operation> all;
  for (const std::size_t k : {kFloats / 1000, kFloats / 100}) {
    const std::string share = fmt::format("{} %", 100.0 * static_cast<double>(k) / kFloats);
    const auto prepare_payload = [=](Bench& b) -> std::size_t {
      b.topk.pick(b.grad, k, b.taken);
      encode(b.taken, kFloats, ValueFormat::kFp32, b.payload);
      return decode(b.payload, kFloats) == b.taken ? 8 * k + b.payload.size() : 0;
    };
    all.push_back({"accumulate_and_take " + share, k,
                   [=](Bench& b) -> std::size_t { return b.selects_exactly(k) ? 12 * kFloats : 0; },
                   [=](Bench& b) { b.select(k); }});
    all.push_back({"pick " + share, k, [=](Bench&) { return 4 * kFloats; },
                   [=](Bench& b) { b.topk.pick(b.residual, k, b.taken); }});
    all.push_back({"encode " + share, k, prepare_payload,
                   [=](Bench& b) { encode(b.taken, kFloats, ValueFormat::kFp32, b.payload); }});
    all.push_back({"decode " + share, k, prepare_payload,
                   [=](Bench& b) { benchmark::DoNotOptimize(decode(b.payload, kFloats)); }});
    all.push_back({"add_to " + share, k, prepare_payload, [=](Bench& b) { add_to(b.payload, b.residual, 1e-6F); }});
  }
  return all;
}

// memcpy that reads and writes `traffic` bytes together, over the whole buffers again and again.
void copy_traffic(Bench& b, std::size_t traffic) {
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

void measure(benchmark::State& state, const Operation& operation, Bench& bench, std::vector<Row>& rows) {
  const std::size_t bytes = operation.prepare(bench);
  if (bytes == 0) return state.SkipWithError("gives a wrong result");
  std::vector<double> times, copies, ratios;
  operation.run(bench);
  for ([[maybe_unused]] auto _ : state) {
    times.push_back(seconds_of([&] { operation.run(bench); }));
    copies.push_back(seconds_of([&] { copy_traffic(bench, bytes); }));
    ratios.push_back(times.back() / copies.back());
    state.SetIterationTime(times.back());
  }
  rows.push_back({operation.name, static_cast<double>(bytes), median(times), median(copies), median(ratios)});
}

void print(const std::vector<Row>& rows) {
  fmt::print("{} floats, one thread, median of {} iterations\n\n", kFloats, kIterations);
  fmt::print("{:<26} {:>9} {:>9} {:>8} {:>13} {:>12}\n", "operation", "MB", "ms", "GB/s", "memcpy GB/s", "time/memcpy");
  for (const Row& row : rows) {
    fmt::print("{:<26} {:>9.2f} {:>9.3f} {:>8.1f} {:>13.1f} {:>12.2f}\n", row.name, row.bytes * 1e-6, row.seconds * 1e3,
               row.bytes / row.seconds * 1e-9, row.bytes / row.memcpy_seconds * 1e-9, row.ratio);
  }
}

class Quiet final : public benchmark::BenchmarkReporter {  // the table at the end says it all, but for errors
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (!run.error_occurred) continue;
      fmt::print(stderr, "topk_bench: {} {}\n", run.benchmark_name(), run.error_message);
      failed = true;
    }
  }
  bool failed = false;
};

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) {
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  fmt::print(stderr,
             "topk_bench: this is a debug or sanitizer build, whose times mean nothing; configure with "
             "-DCMAKE_BUILD_TYPE=RelWithDebInfo and without SLIPSTREAM_SANITIZE\n");
  return 2;
#endif
  using namespace slipstream;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Bench bench;
  std::vector<Row> rows;
  const std::vector<Operation> all = operations();
  for (const Operation& operation : all) {
    benchmark::RegisterBenchmark(operation.name.c_str(),
                                 [&](benchmark::State& state) { measure(state, operation, bench, rows); })
        ->Iterations(kIterations)
        ->UseManualTime();
  }
  Quiet quiet;
  benchmark::RunSpecifiedBenchmarks(&quiet);
  print(rows);
  if (quiet.failed) return 1;
  return rows.empty() ? 2 : 0;
}
