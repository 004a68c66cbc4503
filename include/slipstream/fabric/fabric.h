// SPDX-License-Identifier: Apache-2.0
//
// Fabric: the only way out of a worker. Two implementations of equal rank: the real wire (mesh_fabric) and SimWorld.
//
// Every rank issues the same collective operations (sum, gather) in the same order; decisions about what to issue
// depend on the step number and on agreed data, never on local timing or values. send and recv are matched by (peer,
// tag), in order per pair and tag. All calls come from the training thread and return at once; the work goes on in the
// background until InFlight::wait. Memory handed over must stay alive and untouched until then.
//
// Ranks 0 … size() - 1 are workers. Processes that only serve (server/host.h) are further ranks: they take no part in
// collectives; send and recv reach them, and ourselves.
#pragma once

#include <slipstream/base/clock.h>
#include <slipstream/base/tag.h>
#include <slipstream/fabric/in_flight.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace slipstream {

class Listener;

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

  // One message, made of one or two ranges in a row. Both sides must agree on its size, not on where it is cut.
  virtual InFlight send(int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more) = 0;
  virtual InFlight recv(int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) = 0;
  InFlight send(int to, Tag tag, std::span<const std::byte> bytes) { return send(to, tag, bytes, {}); }
  InFlight recv(int from, Tag tag, std::span<std::byte> bytes) { return recv(from, tag, bytes, {}); }

  // Ends the job: every wait on every rank, including this one, fails with this text. Only the first announcement
  // counts.
  virtual void announce(const std::string& text) = 0;

  // Elastic jobs only (others throw ConfigError): leaves the current group, whatever its state, and waits for the next
  // one to form. Nothing may be in flight. Rank, size and servers may change.
  virtual void regroup();
  virtual void holds_training() {}  // from now on the next group can continue from this process's state
  virtual bool somebody_waits_to_join() const { return false; }

  // Where the parameter servers are: server s is reached at rank first + s. By default one beside every worker.
  struct Servers {
    int count = 0, first = 0;
  };
  virtual Servers servers() const { return {size(), 0}; }
  // Is rank `other` in this process? Messages to it use no wire.
  virtual bool beside(int other) const { return other == rank(); }
  // From now on the listener (wire/listener.h) gets all messages with this tag, from any rank, as they arrive; null:
  // stop.
  virtual void listen(Tag tag, Listener* listener) = 0;
  virtual bool can_listen() const { return true; }  // false: listen() does nothing
};

}  // namespace slipstream
