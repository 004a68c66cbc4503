// SPDX-License-Identifier: Apache-2.0
//
// What the micro benches share. Every iteration times an operation and then a memcpy that moves as many bytes (read and
// written together), so both see the same machine; the table shows medians and the median of the ratios. A ratio of
// 1.00 is an operation as fast as memcpy, 2.00 one that takes twice as long. Time is the time this thread ran: the
// turns of other processes on the machine do not count. Debug and sanitizer builds are refused.
//
//   NAME_bench [--benchmark_filter=REGEX]
#pragma once

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace slipstream::bench {

inline constexpr std::size_t kFloats = 25'000'000;

struct Operation {
  std::string name;
  std::size_t bytes;  // read and written
  std::function<void()> run;
  std::vector<std::string> against = {};  // operations before it that do the same: how many times as fast is it?
  std::function<bool()> right = {};       // whether it gives the right result; asked once, before it is timed
  int iterations = 15;
};

struct Row {
  double seconds, memcpy_seconds, ratio;
};

inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename F>
double seconds_of(const F& f) {
  const double began = thread_seconds();
  f();
  benchmark::ClobberMemory();
  return thread_seconds() - began;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// memcpy that reads and writes `traffic` bytes together, over the whole buffers again and again.
inline void copy_traffic(std::vector<float>& to, const std::vector<float>& from, std::size_t traffic) {
  for (std::size_t left = traffic / 2; left > 0;) {
    const std::size_t now = std::min(left, to.size() * sizeof(float));
    std::memcpy(to.data(), from.data(), now);
    benchmark::ClobberMemory();
    left -= now;
  }
}

class Table final : public benchmark::BenchmarkReporter {
 public:
  void measure(benchmark::State& state, const Operation& operation) {
    if (operation.right && !operation.right()) return state.SkipWithError("gives a wrong result");
    std::vector<double> times, copies, ratios;
    operation.run();
    for ([[maybe_unused]] auto _ : state) {
      times.push_back(seconds_of(operation.run));
      copies.push_back(seconds_of([&] { copy_traffic(to_, from_, operation.bytes); }));
      ratios.push_back(times.back() / copies.back());
      state.SetIterationTime(times.back());
    }
    rows_[operation.name] = {median(times), median(copies), median(ratios)};
    print(operation);
  }

  bool ReportContext(const Context&) override {
    fmt::print("{} floats, one thread, medians\n\n", kFloats);
    fmt::print("{:<28} {:>9} {:>9} {:>8} {:>13} {:>12}\n", "operation", "MB", "ms", "GB/s", "memcpy GB/s",
               "time/memcpy");
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {  // the rows are printed by then, but for errors
    for (const Run& run : runs) {
      if (!run.error_occurred) continue;
      fmt::print(stderr, "{}: {}\n", run.benchmark_name(), run.error_message);
      failed_ = true;
    }
  }
  int exit_code() const { return failed_ ? 1 : rows_.empty() ? 2 : 0; }

 private:
  void print(const Operation& operation) const {
    const Row& row = rows_.at(operation.name);
    const auto bytes = static_cast<double>(operation.bytes);
    fmt::print("{:<28} {:>9.2f} {:>9.3f} {:>8.1f} {:>13.1f} {:>12.2f}", operation.name, bytes * 1e-6, row.seconds * 1e3,
               bytes / row.seconds * 1e-9, bytes / row.memcpy_seconds * 1e-9, row.ratio);
    for (const std::string& other : operation.against) {
      const auto at = rows_.find(other);
      if (at != rows_.end()) fmt::print("   {:.1f} x {}", at->second.seconds / row.seconds, other);
    }
    fmt::print("\n");
  }

  // Written here, so that no page is touched for the first time inside a measurement.
  std::vector<float> from_ = std::vector<float>(kFloats, 1.0F), to_ = std::vector<float>(kFloats, 1.0F);
  std::map<std::string, Row> rows_;
  bool failed_ = false;
};

// The whole of a bench's main: measures the operations that operations_on(data) returns.
template <typename Data>
int run(int argc, char** argv, std::vector<Operation> (*operations_on)(Data&)) {
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  fmt::print(stderr, "{}: a debug or sanitizer build, whose times mean nothing; use ./run bench micro\n", argv[0]);
  return 2;
#endif
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Table table;
  Data data;
  const std::vector<Operation> operations = operations_on(data);
  for (const Operation& operation : operations) {
    benchmark::RegisterBenchmark(operation.name.c_str(),
                                 [&](benchmark::State& state) { table.measure(state, operation); })
        ->Iterations(operation.iterations)
        ->UseManualTime();
  }
  benchmark::RunSpecifiedBenchmarks(&table);
  return table.exit_code();
}

}  // namespace slipstream::bench
