// SPDX-License-Identifier: Apache-2.0
//
// MeteredFabric: a Fabric around another one that counts bytes when an operation starts and measures, at its end, how
// long it was on the wire and how long the worker was blocked in wait(). The one place where traffic is measured;
// strategies carry no timers.
//
// Bytes of a collective are those its algorithm moves: a sum is a reduce-scatter and an all-gather, 2 (P-1)/P of the
// data each way (with 16 bits, of P equal shards; a short sum, which goes whole to everybody, counts the same); a
// gather sends its own part to P-1 others. Data that stays in the same process uses no wire: it counts as time, not as
// bytes. Time during which several operations are on the wire counts once.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "fabric/forwarding_fabric.h"

namespace slipstream {

struct OperationRecord {
  std::string_view kind;                  // "sum", "gather", "send", "recv"
  double bytes = 0;                       // of the caller's data
  double started = 0, finished = 0;       // on the wire
  double wait_began = 0, wait_ended = 0;  // blocked; equal if nothing was waited for
  bool background = false;                // on the background lane
};

// A stretch of the worker's own work, on the same clock as the traffic.
struct WorkRecord {
  // Forward passes, if the loop reports them; the strategy's two hooks; moving weights, inside a hook.
  enum class Kind { kForward, kBucket, kStep, kUpdate } kind;
  std::string_view bucket;  // its layers; lives as long as the engine
  double began = 0, ended = 0;
};

struct Traffic {
  double bytes_sent = 0, bytes_received = 0;
  double wire_seconds = 0;     // at least one operation was on the wire
  double exposed_seconds = 0;  // the worker was blocked
  // The same for the background lane alone, which exists to be hidden.
  double background_wire_seconds = 0, background_exposed_seconds = 0;
  std::vector<OperationRecord> operations;  // those that have ended
  std::vector<WorkRecord> work;             // filled in by the engine
  double ended = 0;                         // when the step ended; filled in by the engine
};

class MeteredFabric final : public ForwardingFabric {
 public:
  explicit MeteredFabric(Fabric& inner) : ForwardingFabric(inner), meter_(std::make_shared<Meter>()) {}

  using Fabric::sum;
  InFlight sum(std::span<float> values, Wire wire) override;
  InFlight gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  using Fabric::recv;
  using Fabric::send;
  InFlight send(int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more) override;
  InFlight recv(int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) override;

  // What happened since the last call.
  Traffic take();

  // Bytes each rank sends (and receives) in a sum of `count` floats over `size` ranks.
  static double sum_bytes(std::size_t count, int size, Wire wire = Wire::kFp32);

 private:
  class Measured;
  struct Meter {
    Traffic traffic;
    double counted_until = 0, background_counted_until = 0;  // wire time before this is counted already
  };
  template <typename Start>
  InFlight measure(const OperationRecord& record, double sent, double received, Start start);

  std::shared_ptr<Meter> meter_;  // shared with operations: an InFlight may outlive this wrapper
};

}  // namespace slipstream
