// SPDX-License-Identifier: Apache-2.0
#include "runtime/wire_bench.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace slipstream {
namespace {

// Small whole numbers, so that the sum over ranks is exact in every format and any rank can tell what it must be.
float contribution(std::size_t i, int rank) { return static_cast<float>((i + static_cast<std::size_t>(rank)) % 5); }

double timed_sum(Fabric& net, std::vector<float>& values, Wire wire) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = contribution(i, net.rank());
  float ready = 0;
  net.sum(std::span(&ready, 1)).wait();  // start together
  const double began = net.clock().now();
  net.sum(values, wire).wait();
  const double seconds = net.clock().now() - began;
  for (std::size_t i = 0; i < values.size(); ++i) {
    float expected = 0;
    for (int r = 0; r < net.size(); ++r) expected += contribution(i, r);
    if (values[i] != expected) {
      fail<FabricError>("a sum of {} floats came out wrong: element {} is {} and should be {}", values.size(), i,
                        values[i], expected);
    }
  }
  return seconds;
}

}  // namespace

int run_wire_bench(const WireBenchOptions& options, const Rendezvous& at) {
  if (options.max_mib < 1 || options.max_mib > 4096) fail<ConfigError>("--max-mib goes from 1 to 4096");
  if (options.repeats < 1 || options.repeats > 100000) fail<ConfigError>("--repeats goes from 1 to 100000");
  const Wire wire = parse_wire(options.wire);
  C10dFabric net(at);
  const bool speaks = net.rank() == 0;
  if (speaks) {
    std::printf("sum over %d workers, %s, %s; %ld repeats, every result verified\n\n", net.size(), options.wire.c_str(),
                net.interface().c_str(), static_cast<long>(options.repeats));
    std::printf("| %10s | %10s | %10s | %12s | %12s |\n|---:|---:|---:|---:|---:|\n", "bytes", "p50 ms", "p99 ms",
                "alg Mb/s", "bus Mb/s");
  }
  for (std::size_t bytes = sizeof(float); bytes <= static_cast<std::size_t>(options.max_mib) << 20; bytes *= 4) {
    std::vector<float> values(bytes / sizeof(float));
    timed_sum(net, values, wire);  // warm-up
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < options.repeats; ++i) seconds.push_back(timed_sum(net, values, wire));
    std::sort(seconds.begin(), seconds.end());
    const double p50 = seconds[seconds.size() / 2];
    const double p99 = seconds[seconds.size() * 99 / 100];
    const double algorithm = 8e-6 * static_cast<double>(bytes) / p50;
    if (speaks) {
      std::printf("| %10zu | %10.3f | %10.3f | %12.1f | %12.1f |\n", bytes, 1e3 * p50, 1e3 * p99, algorithm,
                  algorithm * 2 * (net.size() - 1) / net.size());
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace slipstream
