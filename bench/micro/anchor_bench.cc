// SPDX-License-Identifier: Apache-2.0
//
// anchor_bench: what a late average costs the training thread: taking the snapshot and merging the answer, in copies of
// the model. Every iteration times the operation and then one memcpy of the model, so both see the same machine; the
// table shows medians. Every merge is compared once with a plain loop before it is timed.
//
//   anchor_bench
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "correction/anchor.h"

namespace slipstream {
namespace {

constexpr std::size_t kFloats = 25'000'000;
constexpr int kIterations = 15;
constexpr int kRanks = 4;
constexpr float kKeep = 0.25F;

template <typename F>
double seconds_of(const F& f) {
  const auto began = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Whether the last element is what a plain loop would make of it.
bool merges_right(bool additive) {
  std::vector<float> w = {3.0F};
  Anchor anchor(1, 0, additive);
  anchor.snapshot(w, {});
  anchor.message()[0] = 10.0F;  // the sum
  w[0] = 5.0F;
  additive ? anchor.merge_additive(w, kRanks) : anchor.merge_lerp(w, kKeep, kRanks);
  return w[0] == (additive ? 5.0F - 3.0F + 10.0F / kRanks : kKeep * 5.0F + (1 - kKeep) / kRanks * 10.0F);
}

}  // namespace
}  // namespace slipstream

int main() {
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  fmt::print(stderr,
             "anchor_bench: this is a debug or sanitizer build, whose times mean nothing; use ./run bench micro\n");
  return 2;
#endif
  using namespace slipstream;
  if (!merges_right(false) || !merges_right(true)) {
    fmt::print(stderr, "anchor_bench: a merge gives a wrong result\n");
    return 1;
  }
  std::vector<float> w(kFloats, 0.5F), copy(kFloats, 1.0F);
  Anchor lerp(kFloats, 0, false), additive(kFloats, 0, true);
  const std::vector<std::pair<std::string, std::function<void()>>> operations = {
      {"snapshot, lerp", [&] { lerp.snapshot(w, {}); }},
      {"merge, lerp", [&] { lerp.merge_lerp(w, kKeep, kRanks); }},
      {"snapshot, additive", [&] { additive.snapshot(w, {}); }},
      {"merge, additive", [&] { additive.merge_additive(w, kRanks); }},
  };
  fmt::print("{} floats, one thread, median of {} iterations\n\n", kFloats, kIterations);
  fmt::print("{:<20} {:>9} {:>24}\n", "operation", "ms", "copies of the model");
  for (const auto& [name, run] : operations) {
    std::vector<double> times, ratios;
    run();
    for (int i = 0; i < kIterations; ++i) {
      times.push_back(seconds_of(run));
      ratios.push_back(times.back() / seconds_of([&] { std::memcpy(copy.data(), w.data(), kFloats * sizeof(float)); }));
    }
    fmt::print("{:<20} {:>9.2f} {:>24.2f}\n", name, 1e3 * median(times), median(ratios));
  }
  return copy.back() == w.back() ? 0 : 1;
}
