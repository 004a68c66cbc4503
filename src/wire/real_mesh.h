// SPDX-License-Identifier: Apache-2.0
//
// RealMesh: the only implementation of MeshCore, behind Mesh. It holds a Peer for every other rank and one for the hub:
// the connections, what comes in (Inbox) and what waits to leave (Outbox). Its parts: mesh.cc (start, commands, frames,
// messages), mesh_joining.cc (connecting), mesh_ending.cc (failures, silence, leaving). Only those three include this
// header; everybody else uses mesh.h.
//
// Threads: start() and close() run on the thread that makes and destroys the Mesh; submit() on any; listen(), fail()
// and stalled() on any but the I/O thread, because they wait for it. start() begins the I/O thread, and close() joins
// it. All private functions run on it, except that fail() calls note_failure() where it is called.
//
// The mutex of MeshCore guards the failure, commands_ and the states joined_, spread_ and closed_. Only the I/O thread
// writes joined_, so it reads it without the mutex. No owner of a transfer is called with the mutex held. Everything
// else is set before the I/O thread begins, or belongs to that thread alone; streams() reads what no longer changes
// once start() has returned, as do rank(), ranks(), workers(), epoch() and name().
#pragma once

#include <array>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "wire/doorway.h"
#include "wire/inbox.h"
#include "wire/link.h"
#include "wire/listener.h"
#include "wire/mesh.h"
#include "wire/outbox.h"
#include "wire/roster.h"

namespace slipstream {

class RealMesh final : public MeshCore, public LinkEvents, public Answers {
 public:
  explicit RealMesh(const MeshOptions& options);

  void start();
  void close();

  int rank() const override { return rank_; }
  int ranks() const { return ranks_; }
  int workers() const { return workers_; }
  std::uint32_t epoch() const { return epoch_; }
  std::string seats() const;
  bool knocked() const { return knocked_; }
  void holds_training();
  // Uses the number the process was started with, which stays the same when the group changes.
  std::string name(int rank) const override {
    const auto at = static_cast<std::size_t>(rank);
    const int seat = at < seats_.size() ? seats_[at] : rank;
    return rank_name(seat, rank < workers_ ? seat + 1 : options_.workers);
  }
  int streams(int peer) const {
    const auto& one = peers_[static_cast<std::size_t>(peer)];
    return one ? static_cast<int>(one->streams) : 0;
  }

  int port() const { return doorway_ ? doorway_->port() : 0; }

  void submit(std::span<const MeshCommand> commands) override;
  void listen(Tag tag, Listener* listener) override;
  void fail(const std::string& text) override;
  void stalled(const std::string& text) override;

  // Answers of a listener, on the I/O thread.
  void send(int to, Tag tag, const LetterHead& head, std::shared_ptr<const Floats> body) override;

 private:
  using Kind = FrameHead::Kind;

  // An answer of a listener: sent in the background, then reused.
  struct Answer final : TransferOwner {
    std::function<void(Answer&)> done;
    Transfer transfer;
    LetterHead head{};
    std::shared_ptr<const Floats> body;
    void ended(Transfer&, bool) override { done(*this); }
  };

  struct Peer {
    int rank;
    Inbox in;
    Outbox out;
    std::vector<std::shared_ptr<Link>> links{};
    std::size_t streams = 1;
    std::array<std::uint64_t, FrameHead::kLanes> told{};  // credit given so far
    double heard_at = 0;
    bool joined = false, left = false, lost = false, woken = false;
  };

  // Messages to ourselves under one tag, by number.
  struct Own {
    std::deque<Transfer*> sends, receives;
  };

  // ---- joining
  void connect_to_hub();
  void connect(const Address& to, const Key& key, const Introduction& mine, Peer& peer, const char* what);
  void link_ready(Link& link) override;
  void meet_everybody(const Roster& roster);
  void join_when_all_are_met();
  void become_joined();
  bool peers_meeting() const { return epoch_ != 0; }
  bool meets_others() const { return options_.ranks > 1 || options_.elastic; }

  // ---- frames
  void frame_begins(Link& link, const FrameHead& head) override;
  std::span<std::byte> payload_memory(Link& link, const FrameHead& head, std::uint64_t at) override;
  void frame_arrived(Link& link, const FrameHead& head) override;
  void give_credit(Peer& peer, int lane);
  bool next_frame(Link& link, OutFrame& out) override;
  void frame_left(Link& link, const OutFrame& out) override;

  // ---- messages
  void drain();
  void start_send(Transfer& t);
  void start_receive(Transfer& t);
  void withdraw(Transfer& t);
  void meet(Own& own);
  void mark(Peer& peer);
  void wake_marked();

  // ---- failing and leaving
  void link_refused(Link& link, const std::string& why) override;
  void link_lost(Link& link, bool closed, const std::string& why) override;
  void lose(Peer& peer, const std::string& why);
  void note_failure(const std::string& text, bool from_another);
  void give_up(const std::string& text);
  void spread_failure();
  void leave();
  void end_when_flushed();
  void tick();
  void look_for_silence(double now);

  // ---- words for messages
  std::string connection_failed(const Peer& peer, const std::string& why) const;
  std::string orphaned() const;
  std::string hub_name() const;
  std::string during(const Peer& peer);
  std::string silent(const Peer& peer, double now);

  // ---- small things
  Peer& peer_of(int rank);
  Listener* listener_of(Tag tag) const;
  template <typename Work>
  void for_all_peers(const Work& work) {
    for (auto& peer : peers_) {
      if (peer) work(*peer);
    }
    work(hub_);
  }
  static std::chrono::milliseconds millis(double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  }

  const MeshOptions options_;
  int rank_, ranks_, workers_;  // as told by the rendezvous; until then as in the options
  std::vector<int> seats_;      // by rank
  const double silence_seconds_, beat_seconds_;
  const std::uint64_t window_;
  asio::io_context io_;
  asio::steady_timer timer_;
  std::optional<Doorway> doorway_;
  std::optional<TlsContext> tls_;
  std::thread thread_;

  std::atomic<bool> knocked_{false};

  // Guarded by the mutex.
  std::vector<MeshCommand> commands_;
  bool joined_ = false, closed_ = false, spread_ = false;

  // I/O thread only.
  std::uint32_t epoch_ = 0;
  Peer hub_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; ours is null
  std::vector<std::shared_ptr<Link>> opening_;
  std::vector<Peer*> marked_;  // peers whose links should look for something to send
  std::map<Tag, Own> own_;
  std::map<Tag, Listener*> listeners_;
  std::map<std::pair<int, Tag>, std::uint64_t> answered_;
  std::vector<std::unique_ptr<Answer>> answers_;
  std::vector<Answer*> spare_answers_;
  std::vector<MeshCommand> draining_;
  bool failure_spread_ = false, leaving_ = false;
  double began_at_ = 0, heard_ourselves_at_ = 0, leaving_at_ = 0;
};

}  // namespace slipstream
