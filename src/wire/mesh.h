// SPDX-License-Identifier: Apache-2.0
//
// Mesh: the connections of one process to all others of its job, and the one thread that serves them. Messages are
// eager: they leave when they are sent, without asking the receiver. inbox.h says where one waits for its receive,
// outbox.h in which order they leave.
//
// Every wait ends. A peer shows life twice a second on the wire itself. If one is silent for the timeout, closes its
// connection without a goodbye, or breaks the protocol, the job ends: the first failure counts, it ends all transfers,
// and all other ranks are told. After that nothing blocks, whatever is destroyed first.
//
// Threads: submit(), fail(), listen() from any thread. Transfers end, and listeners are called, on the I/O thread.
#pragma once

#include <slipstream/base/clock.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wire/listener.h"
#include "wire/patience.h"
#include "wire/roster.h"
#include "wire/transfer.h"

namespace slipstream {

struct MeshOptions {
  int rank = 0;             // in an elastic job: the seat; the rank then comes from the rendezvous
  int ranks = 1;            // of the mesh: workers, then processes that only serve
  int workers = 1;          // ranks from this one on are servers
  bool serves = false;      // this process only serves
  bool elastic = false;     // there may be fewer ranks, or more
  std::uint32_t epoch = 0;  // the last group this process was in; 0: none
  int last_rank = 0;        // its rank there
  bool holds = false;       // this process holds the training
  Address hub;              // where the ranks find each other
  bool supervised = false;  // the hub stays for the whole job, shows life and announces failures
  Key key{};
  bool encrypted = false;
  std::string address = "127.0.0.1";  // our address, for the others to connect to
  int streams = 0;                    // connections to each peer; 0: several to a distant one, unless TCP uses bbr
  double timeout_seconds = 0;         // 0: automatic, see patience.h
  double join_timeout_seconds = 60;
  std::function<bool()> interrupted{};  // polled while waiting for others
  std::string early_failure{};          // not empty: this rank cannot join, and only tells the others why
  std::uint64_t window_bytes = 0;       // per peer and lane; 0: 128 MiB over all peers, 1 to 16 MiB each
};

struct MeshCommand {
  enum class Kind { kSend, kReceive, kWithdraw } kind;
  Transfer* transfer;
};

class MeshCore;

class Mesh {
 public:
  explicit Mesh(const MeshOptions& options);  // blocks until all are connected; throws FabricError, ConfigError
  ~Mesh();                                    // leaves
  void leave();                               // after it all transfers have ended
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  MeshCore& core() { return *core_; }
  std::shared_ptr<MeshCore> shared() { return core_; }
  int rank() const;
  int ranks() const;
  int workers() const;
  std::uint32_t epoch() const;  // the group's number, from 1 on
  std::string seats() const;    // of the workers, by rank, for people: "0, 2, 3"
  bool somebody_waits_to_join() const;
  void holds_training();        // from now on this process holds the training; tells the rendezvous
  int streams(int peer) const;  // connections to it, as chosen
  int port() const;             // where we listen; 0: nowhere, since there is nobody else

 private:
  std::shared_ptr<MeshCore> core_;
};

// What operations need from a mesh. They keep it alive, so it may outlive the Mesh; it is closed then.
class MeshCore {
 public:
  explicit MeshCore(double timeout_seconds) : patience(timeout_seconds) {}
  virtual ~MeshCore() = default;

  virtual int rank() const = 0;
  virtual std::string name(int rank) const = 0;

  // Starts the commands in order, with one wake-up of the I/O thread. After a failure they end at once, without
  // success. Each is answered by one ended(); a receive that is withdrawn gets two, its own and the withdrawal's. So a
  // caller that has got all answers knows that the mesh has forgotten the transfer.
  virtual void submit(std::span<const MeshCommand> commands) = 0;
  // Messages with this tag go to the listener from now on; null: no longer. Returns when the I/O thread knows.
  virtual void listen(Tag tag, Listener* listener) = 0;
  // Ends the job and tells all others. Only the first failure counts.
  virtual void fail(const std::string& text) = 0;
  // An operation has waited too long. Fails with `text`, or with the name of a peer that shows no life, if there is
  // one.
  virtual void stalled(const std::string& text) = 0;

  // How waiting threads and the I/O thread meet: `mutex` guards what operations note about their own end, the failure
  // and the patience; `changed` is notified when an operation that is waited for has ended, and on a failure.
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> failure;  // waiting threads are woken only after all others were told
  bool announced = false;              // another process found and announced it
  std::string waiting_for{};           // what the training thread waits for, for messages
  Patience patience;
  SteadyClock clock;
  [[noreturn]] void throw_failure() const;  // call it with the mutex held, after a failure
};

}  // namespace slipstream
