// SPDX-License-Identifier: Apache-2.0
//
// The wire benchmark: sums over all ranks by size, then pushes to and pulls from the servers, verified while timed. One
// row a size: p50 and p99 over the repeats, algorithm bandwidth (bytes / p50) and, of a sum, bus bandwidth (× 2
// (P-1)/P: what each port carried).
#pragma once

#include <slipstream/fabric/rendezvous.h>

#include <cstdint>
#include <string>

namespace slipstream {

struct WireBenchOptions {
  std::int64_t max_mib = 64;
  std::int64_t repeats = 20;
  std::string wire = "fp32";
};

// One rank of it; rank 0 prints. Throws FabricError where a sum came out wrong.
int run_wire_bench(const WireBenchOptions& options, const Rendezvous& at);

}  // namespace slipstream
