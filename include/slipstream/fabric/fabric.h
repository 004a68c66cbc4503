// SPDX-License-Identifier: Apache-2.0
//
// Fabric: the only way out of a worker. Two implementations of equal rank: the real wire (c10d_fabric) and SimWorld.
//
// Every rank issues the same collective operations (sum, gather) in the same order; decisions about what to issue
// depend on the step number and on agreed data, never on local timing or values. send and recv are matched by (peer,
// tag), in order per pair and tag. All calls come from the training thread and return at once; the work goes on in the
// background until InFlight::wait. Memory handed over must stay alive and untouched until then.
//
// Servers, where a strategy needs them (topology/server_loop.h), are extra ranks size() … size() + servers() - 1. They
// take no part in collectives; send and recv reach them.
#pragma once

#include <slipstream/base/clock.h>
#include <slipstream/fabric/in_flight.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace slipstream {

using Tag = std::uint32_t;

// Between a worker and a server a tag is one of two lanes with a connection each: what is waited for does not queue
// behind what is not.
inline constexpr Tag kUrgent = 0, kBackground = 1;

// The number format of a sum on the wire. With 16 bits every rank's values are rounded once, added in fp32 in rank
// order, and the result is rounded once more; no partial sum is ever held in 16 bits.
enum class Wire { kFp32, kFp16, kBf16 };
Wire parse_wire(std::string_view name);  // "fp32", "fp16", "bf16"

// Elements in each of the P shards of a 16-bit sum (the last may be padded).
inline std::size_t sum_shard(std::size_t count, int ranks) {
  return (count + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
}

class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Clock& clock() = 0;

  // Element-wise sum over all ranks, in place. The result is bit-identical on all ranks and from run to run.
  virtual InFlight sum(std::span<float> values, Wire wire) = 0;
  InFlight sum(std::span<float> values) { return sum(values, Wire::kFp32); }

  // `all` receives every rank's `mine`, in rank order. All ranks contribute the same number of bytes.
  virtual InFlight gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  virtual InFlight send(int to, Tag tag, std::span<const std::byte> bytes) = 0;
  virtual InFlight recv(int from, Tag tag, std::span<std::byte> bytes) = 0;

  virtual int servers() const { return 0; }
  // Is `rank` a server inside this process? What goes there or comes from there is on no wire.
  virtual bool beside(int /*rank*/) const { return false; }

  // Makes the servers reachable; all ranks call it, once. Where none run as processes of their own, every rank runs
  // `serve` on a thread of this process, with an endpoint of its own, for as long as the fabric lives.
  virtual void open_servers(const std::function<void(Fabric&)>& serve);

  // Waits until the servers of this process have ended, as they do once every worker has taken leave.
  virtual void close_servers() {}

  // The job cannot go on: every wait on every rank, here too, ends with this text. The first announcement stands.
  virtual void announce_failure(const std::string& /*text*/) {}

  // Blocks until at least one of these operations has ended; for servers, who cannot know who comes next.
  virtual void wait_any(std::span<Operation* const> operations);
};

}  // namespace slipstream
