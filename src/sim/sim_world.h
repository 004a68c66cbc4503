// SPDX-License-Identifier: Apache-2.0
//
// SimWorld: a whole job of P workers (and S servers) inside one process, in virtual time. The same strategy code that
// runs over the real wire runs here over SimPort: numbers are real, time is not. Links, ports and faults are described
// by the options.
//
// The same options and body give the same run, bit for bit, in results, times and order of events. The seed only
// decides between ranks that are due at the same virtual time. Exactly one rank runs at a time, so a body may write to
// what all ranks share without a lock. No operation waits for ever: a missing peer ends in FabricError after the
// virtual timeout.
//
// It does not model processors, memory or packet loss with retries; a rank's own work takes the time compute() says.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <functional>
#include <string>
#include <vector>

#include "sim/sim_collectives.h"
#include "sim/sim_messages.h"

namespace slipstream {

struct SimWorldOptions {
  int ranks = 2;                // workers
  int servers = 0;              // ranks beyond them, without collectives
  bool servers_beside = false;  // server s shares the machine of worker s; equal numbers of both
  std::uint64_t seed = 1;
  LinkModel link = {};            // of all pairs …
  LinkOverrides pair_links = {};  // … but these (from, to)
  double bytes_scale = 1.0;       // how often every byte counts in the time model: small stand-ins for large models
  double timeout_s = 60.0;        // virtual
  std::vector<Fault> faults = {};
  bool record_events = false;  // keep a diary: SimWorld::events
};

// How a rank ended.
struct RankOutcome {
  enum class Kind { kFinished, kCrashed, kFailed };  // kCrashed: by the fault script; kFailed: by a FabricError

  Kind kind = Kind::kFinished;
  std::string error;  // kFailed: its message
  double ended_at = 0.0;

  bool finished() const { return kind == Kind::kFinished; }
  bool operator==(const RankOutcome&) const = default;
};

class SimWorld;

// A rank's Fabric. Used only by the rank's own body.
class SimPort final : public Fabric {
 public:
  SimPort(SimWorld& world, int rank) : world_(world), rank_(rank), clock_(world) {}
  SimPort(const SimPort&) = delete;
  SimPort& operator=(const SimPort&) = delete;

  int rank() const override { return rank_; }
  int size() const override;
  Clock& clock() override { return clock_; }
  using Fabric::sum;
  InFlight sum(std::span<float> values, Wire wire) override;
  InFlight gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  using Fabric::recv;
  using Fabric::send;
  InFlight send(int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more) override;
  InFlight recv(int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) override;
  void announce(const std::string&) override {}  // a failure shows as a rank that ends
  Servers servers() const override;
  bool beside(int rank) const override;
  void listen(Tag, Listener*) override {}  // servers are separate ranks, and use next_letter()
  bool can_listen() const override { return false; }

  SimLetter next_letter();            // for servers: the next message from any rank
  void compute(double seconds);       // the rank's own work: virtual time passes, others run
  void mark_step(std::int64_t step);  // step t begins: triggers the faults scripted for it

 private:
  class VirtualClock final : public Clock {
   public:
    explicit VirtualClock(const SimWorld& world) : world_(world) {}
    double now() const override;

   private:
    const SimWorld& world_;
  };

  SimWorld& world_;
  const int rank_;
  VirtualClock clock_;
};

class SimWorld {
 public:
  // Throws ConfigError for options that make no sense.
  explicit SimWorld(const SimWorldOptions& options);
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  // Runs `body` once per rank, until all have ended; once per world. An exception that is not a FabricError stops all
  // ranks and is thrown here.
  std::vector<RankOutcome> run(const std::function<void(SimPort&)>& body);

  double now() const { return core_.scheduler.now(); }
  const std::vector<SimEvent>& events() const { return core_.events; }

 private:
  friend class SimPort;

  RankOutcome run_rank(int rank, const std::function<void(SimPort&)>& body);
  void begin(SimFaults::Entry& entry);
  void lose(int rank);
  void mark_step(int rank, std::int64_t step);

  SimCore core_;
  SimCollectives collectives_;
  SimMessages messages_;
  bool used_ = false;
  std::exception_ptr error_;  // the first that was not a FabricError
};

}  // namespace slipstream
