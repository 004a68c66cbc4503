// SPDX-License-Identifier: Apache-2.0
//
// Mesh: the connections of one process to all others of its job, and the one thread that serves them. A message is
// eager: it leaves when it is sent, without asking; where it waits for its receive is inbox.h's business, in which order
// things leave outbox.h's.
//
// Every wait ends. A peer shows life twice a second on the wire itself; one that is silent for the timeout, closes its
// connection without a goodbye, or breaks the protocol ends the job: the first failure stands, it ends all transfers,
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
  int rank = 0;             // in an elastic job: the seat; the rank comes from the rendezvous
  int ranks = 1;            // of the mesh: workers, then processes that only serve
  int workers = 1;          // ranks from there on are servers
  bool serves = false;      // this process does
  bool elastic = false;     // there may be fewer ranks, or more
  std::uint32_t epoch = 0;  // the last group this process was in; 0: none
  int last_rank = 0;        // its rank there
  bool holds = false;       // a training
  Address hub;              // where the ranks find each other
  bool supervised = false;  // the hub stays, shows life and announces failures
  Key key{};
  bool encrypted = false;
  std::string address = "127.0.0.1";  // ours, for the others to connect to
  int streams = 0;                    // connections to each peer; 0: several to a far one, unless TCP is bbr
  double timeout_seconds = 0;         // 0: chosen, see patience.h
  double join_timeout_seconds = 60;
  std::function<bool()> interrupted{};  // asked now and then while others are waited for
  std::string early_failure{};          // this rank cannot join: it only tells the others why
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
  void leave();                               // all transfers have ended then
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
  void holds_training();        // this process does, from now on: the rendezvous is told
  int streams(int peer) const;  // connections to it, as chosen
  int port() const;             // where we listen; 0: nowhere, there is nobody else

 private:
  std::shared_ptr<MeshCore> core_;
};

// What operations need of a mesh; they keep it alive, so it may outlive the Mesh, closed.
class MeshCore {
 public:
  explicit MeshCore(double timeout_seconds) : patience(timeout_seconds) {}
  virtual ~MeshCore() = default;

  virtual int rank() const = 0;
  virtual std::string name(int rank) const = 0;

  // Starts them, in order, with one wake-up of the I/O thread. After a failure they end at once, without success. Each
  // is answered by one ended(); a receive that is withdrawn gets two, its own and the withdrawal's. So who waits for all
  // answers knows that the mesh has forgotten the transfer.
  virtual void submit(std::span<const MeshCommand> commands) = 0;
  // Messages under this tag go to the listener from now on; null: no more. Returns when the I/O thread knows.
  virtual void listen(Tag tag, Listener* listener) = 0;
  // The job cannot go on; all others are told. The first failure stands.
  virtual void fail(const std::string& text) = 0;
  // Nothing came of these peers for as long as one waits. Fails with `text`, or, where one of them shows no life, with its name.
  virtual void stalled(const std::string& text) = 0;

  // How the I/O thread and those who wait for it meet: `mutex` guards what operations note about their own end, the
  // failure and the patience; `changed` is notified when an operation that is waited for has ended, and at a failure.
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> failure;  // nobody is woken before all others were told
  bool announced = false;              // the failure was found and told by another process
  std::string waiting_for{};           // what the training thread waits for, for messages
  Patience patience;
  SteadyClock clock;
  [[noreturn]] void throw_failure() const;  // with the mutex held, after a failure
};

}  // namespace slipstream
