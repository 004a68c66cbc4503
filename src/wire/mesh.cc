// SPDX-License-Identifier: Apache-2.0
//
// The mesh as others see it: it starts and closes, takes commands and listeners, and moves messages in frames. Joining
// is in mesh_joining.cc, ending in mesh_ending.cc.
#include "wire/mesh.h"

#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cstring>

#include "wire/io_thread.h"
#include "wire/real_mesh.h"

namespace slipstream {

void MeshCore::throw_failure() const { throw_failure_text(*failure, announced); }

Mesh::Mesh(const MeshOptions& options) {
  auto core = std::make_shared<RealMesh>(options);
  core->start();
  core_ = std::move(core);
}

Mesh::~Mesh() { leave(); }

void Mesh::leave() { static_cast<RealMesh&>(*core_).close(); }

int Mesh::rank() const { return core_->rank(); }
int Mesh::ranks() const { return static_cast<const RealMesh&>(*core_).ranks(); }
int Mesh::workers() const { return static_cast<const RealMesh&>(*core_).workers(); }
std::uint32_t Mesh::epoch() const { return static_cast<const RealMesh&>(*core_).epoch(); }
std::string Mesh::seats() const { return static_cast<const RealMesh&>(*core_).seats(); }
void Mesh::holds_training() { static_cast<RealMesh&>(*core_).holds_training(); }
bool Mesh::somebody_waits_to_join() const { return static_cast<const RealMesh&>(*core_).knocked(); }
int Mesh::streams(int peer) const { return static_cast<const RealMesh&>(*core_).streams(peer); }
int Mesh::port() const { return static_cast<const RealMesh&>(*core_).port(); }

RealMesh::RealMesh(const MeshOptions& options)
    : MeshCore(options.timeout_seconds),
      options_(options),
      rank_(options.rank),
      ranks_(options.ranks),
      workers_(options.workers),
      silence_seconds_(patience.silence()),
      beat_seconds_(std::clamp(silence_seconds_ / 10, 0.05, 0.5)),
      window_(options.window_bytes != 0
                  ? options.window_bytes
                  : std::clamp<std::uint64_t>((128ULL << 20) / static_cast<std::uint64_t>(std::max(1, options.ranks)),
                                              1 << 20, 16 << 20)),
      timer_(io_),
      hub_{Link::kHub,
           Inbox(
               Link::kHub, 0, [](Tag) { return nullptr; }, *this),
           Outbox(0, 0)} {
  if (meets_others() && options.early_failure.empty()) doorway_.emplace(io_, options.address, 0);
  if (options.encrypted) tls_.emplace(options.key);
  peers_.resize(static_cast<std::size_t>(ranks_));
  for (int r = 0; r < ranks_; ++r) seats_.push_back(r);
}

std::string RealMesh::seats() const {
  return fmt::format("{}", fmt::join(seats_.begin(), seats_.begin() + workers_, ", "));
}

void RealMesh::start() {
  began_at_ = heard_ourselves_at_ = clock.now();
  thread_ = std::thread([this] { run_io(io_); });
  asio::post(io_, [this] {
    if (meets_others()) {
      connect_to_hub();
    } else {
      become_joined();
    }
    tick();
  });
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, std::chrono::milliseconds(100), [this] { return joined_ || spread_; })) {
    if (!options_.interrupted || !options_.interrupted()) continue;
    lock.unlock();
    fail(kUsersWish +
         fmt::format("{} was asked to stop while the job was starting", rank_name(options_.rank, options_.workers)));
    lock.lock();
  }
  if (!failure) return;
  const std::string text = *failure;
  const bool told = announced;
  lock.unlock();
  close();
  throw_failure_text(text, told);
}

void RealMesh::close() {
  if (!thread_.joinable()) return;
  asio::post(io_, [this] { leave(); });
  thread_.join();
}

void RealMesh::submit(std::span<const MeshCommand> commands) {
  bool wake = false, dead = false;
  {
    const std::lock_guard lock(mutex);
    dead = closed_;
    if (!dead) {
      wake = commands_.empty();
      commands_.insert(commands_.end(), commands.begin(), commands.end());
    }
  }
  if (wake) asio::post(io_, [this] { drain(); });
  if (!dead) return;
  for (const MeshCommand& command : commands) command.transfer->owner->ended(*command.transfer, false);
}

void RealMesh::listen(Tag tag, Listener* listener) {
  bool done = false;
  {
    const std::lock_guard lock(mutex);
    if (closed_) {
      if (listener != nullptr) listener->failed(failure.value_or("the job has ended"));
      return;
    }
  }
  asio::post(io_, [&, tag, listener] {
    if (listener != nullptr) {
      listeners_[tag] = listener;
      if (failure_spread_) {
        const std::lock_guard lock(mutex);
        listener->failed(*failure);
      }
    } else {
      listeners_.erase(tag);
    }
    try {
      for (auto& peer : peers_) {
        if (peer) peer->in.listener_changed(tag);
      }
    } catch (const std::exception& e) {
      give_up(e.what());
    }
    wake_marked();
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done || closed_; });
}

void RealMesh::fail(const std::string& text) {
  note_failure(text, false);
  asio::post(io_, [this] { spread_failure(); });
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return spread_ || closed_; });
}

void RealMesh::holds_training() {
  asio::post(io_, [this] {
    hub_.out.text(Kind::kHolds, "");
    mark(hub_);
    wake_marked();
  });
}

void RealMesh::stalled(const std::string& text) {
  asio::post(io_, [this, text] {
    const double now = clock.now();
    for_all_peers([&](const Peer& peer) {  // the peer we wait for may itself wait for a silent one
      const bool silent_so_far = peer.joined && !peer.left && !peer.links.empty();
      if (silent_so_far && now - peer.heard_at > silence_seconds_ / 2) note_failure(silent(peer, now), false);
    });
    note_failure(text, false);
    spread_failure();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return spread_ || closed_; });
}

void RealMesh::send(int to, Tag tag, const LetterHead& head, std::shared_ptr<const Floats> body) {
  if (spare_answers_.empty()) {
    auto& fresh = answers_.emplace_back(std::make_unique<Answer>());
    fresh->done = [this](Answer& answer) {
      answer.body.reset();
      spare_answers_.push_back(&answer);
    };
    spare_answers_.push_back(fresh.get());
  }
  Answer& answer = *spare_answers_.back();
  spare_answers_.pop_back();
  answer.head = head;
  answer.body = std::move(body);
  Transfer& t = answer.transfer;
  t.peer = to;
  t.tag = tag;
  t.number = answered_[{to, tag}]++;
  t.owner = &answer;
  t.queued = 0;
  t.moved.store(0, std::memory_order_relaxed);
  t.parts.ranges = {std::span<std::byte>(answer.head),
                    answer.body ? sendable(std::as_bytes(std::span(*answer.body))) : std::span<std::byte>()};
  start_send(t);
  wake_marked();
}

void RealMesh::frame_begins(Link& link, const FrameHead& head) {
  if (head.kind == Kind::kData) {
    if (link.peer == Link::kHub) slipstream::fail<FabricError>("a frame is refused: the rendezvous sends no data");
    return peer_of(link.peer).in.begins(head);
  }
  const bool hubs = head.kind == Kind::kRoster || head.kind == Kind::kKnock;
  if (head.kind == Kind::kJoin || head.kind == Kind::kHolds || (hubs && link.peer != Link::kHub)) {
    slipstream::fail<FabricError>("a frame is refused: a rank takes none of its kind");
  }
  link.text.resize(head.length);
}

std::span<std::byte> RealMesh::payload_memory(Link& link, const FrameHead& head, std::uint64_t at) {
  if (head.kind == Kind::kData) return peer_of(link.peer).in.memory(head, at);
  return std::as_writable_bytes(std::span(link.text)).subspan(at);
}

void RealMesh::frame_arrived(Link& link, const FrameHead& head) {
  Peer& peer = link.peer == Link::kHub ? hub_ : peer_of(link.peer);
  peer.heard_at = clock.now();
  switch (head.kind) {
    case Kind::kData:
      peer.in.arrived(head);
      give_credit(peer, head.lane);
      wake_marked();
      break;
    case Kind::kCredit:
      peer.out.credit(head.lane, head.number);
      mark(peer);
      wake_marked();
      break;
    case Kind::kFailure:
      note_failure(link.text, true);
      spread_failure();
      break;
    case Kind::kRoster:
      meet_everybody(Roster::from_text(link.text));
      break;
    case Kind::kBye:
      peer.left = true;
      break;
    case Kind::kKnock:
      knocked_ = true;
      break;
    case Kind::kBeat:
    case Kind::kJoin:
    case Kind::kHolds:
      break;
  }
}

void RealMesh::give_credit(Peer& peer, int lane) {
  const std::uint64_t taken = peer.in.taken(lane);
  std::uint64_t& told = peer.told[static_cast<std::size_t>(lane)];
  if (taken - told < window_ / 4) return;
  told = taken;
  peer.out.tell_taken(lane, taken);
  mark(peer);
}

bool RealMesh::next_frame(Link& link, OutFrame& out) {
  return (link.peer == Link::kHub ? hub_ : peer_of(link.peer)).out.next(out);
}

void RealMesh::frame_left(Link& link, const OutFrame& out) {
  (link.peer == Link::kHub ? hub_ : peer_of(link.peer)).out.left(out);
}

void RealMesh::drain() {
  {
    const std::lock_guard lock(mutex);
    draining_.swap(commands_);
  }
  for (const MeshCommand& command : draining_) {
    Transfer& t = *command.transfer;
    if (failure_spread_) {
      t.owner->ended(t, false);
      continue;
    }
    try {
      switch (command.kind) {
        case MeshCommand::Kind::kSend:
          start_send(t);
          break;
        case MeshCommand::Kind::kReceive:
          start_receive(t);
          break;
        case MeshCommand::Kind::kWithdraw:
          withdraw(t);
          break;
      }
    } catch (const std::exception& e) {  // neither inbox nor outbox has it
      const std::string with = t.peer == rank_ ? "" : " with " + name(t.peer);
      give_up(fmt::format("{}{}: {}", name(rank_), with, e.what()));
      t.owner->ended(t, false);
    }
  }
  draining_.clear();
  wake_marked();
}

void RealMesh::start_send(Transfer& t) {
  if (t.peer == rank_) {
    if (Listener* listener = listener_of(t.tag)) {
      LetterHead head;
      check(t.parts.ranges[0].size() == head.size(), "a letter to ourselves with a head of {} bytes",
            t.parts.ranges[0].size());
      std::memcpy(head.data(), t.parts.ranges[0].data(), head.size());
      listener->begins(t.peer, t.tag, head, t.parts.ranges[1].size());
      listener->arrived(t.peer, t.tag, head, t.parts.ranges[1], *this);
      return t.owner->ended(t, true);
    }
    own_[t.tag].sends.push_back(&t);
    return meet(own_[t.tag]);
  }
  Peer& peer = peer_of(t.peer);
  peer.out.add(t);
  if (peer.left || peer.lost) return lose(peer, "it has left the job, and is still sent to");
  mark(peer);
}

void RealMesh::start_receive(Transfer& t) {
  if (t.peer == rank_) {
    own_[t.tag].receives.push_back(&t);
    return meet(own_[t.tag]);
  }
  Peer& peer = peer_of(t.peer);
  const int lane = lane_of(t.tag);
  peer.in.post(t);  // may end it, after which its owner may be gone
  give_credit(peer, lane);
  if (peer.in.expects() && peer.left && peer.links.empty()) lose(peer, "it has left the job, and is still waited for");
}

void RealMesh::withdraw(Transfer& t) {
  if (t.peer != rank_) {
    peer_of(t.peer).in.withdraw(t);
  } else if (std::erase(own_[t.tag].receives, &t) > 0) {
    t.owner->ended(t, false);
  }
  t.owner->ended(t, false);  // answers the command itself
}

// Matches sends to ourselves with their receives, in order.
void RealMesh::meet(Own& own) {
  while (!own.sends.empty() && !own.receives.empty()) {
    Transfer& from = *own.sends.front();
    Transfer& to = *own.receives.front();
    own.sends.pop_front();
    own.receives.pop_front();
    if (from.parts.bytes() != to.parts.bytes()) {
      give_up(fmt::format("{} sent {} bytes to itself where {} are received", name(rank_), from.parts.bytes(),
                          to.parts.bytes()));
    } else {
      for (std::uint64_t done = 0; done < from.parts.bytes();) {
        const auto source = from.parts.at(done, from.parts.bytes() - done);
        const auto target = to.parts.at(done, source.size());
        std::memcpy(target.data(), source.data(), target.size());
        done += target.size();
      }
    }
    from.owner->ended(from, true);
    to.owner->ended(to, true);
  }
}

void RealMesh::mark(Peer& peer) {
  if (!std::exchange(peer.woken, true)) marked_.push_back(&peer);
}

void RealMesh::wake_marked() {
  for (std::size_t i = 0; i < marked_.size(); ++i) {  // the list may grow
    Peer& peer = *marked_[i];
    peer.woken = false;
    for (std::size_t l = 0; l < peer.links.size(); ++l) peer.links[l]->wake();
  }
  marked_.clear();
}

RealMesh::Peer& RealMesh::peer_of(int rank) {
  check(rank >= 0 && rank < ranks_ && rank != rank_ && peers_[static_cast<std::size_t>(rank)],
        "a message for rank {}; there are {} ranks, and this is {}", rank, ranks_, rank_);
  return *peers_[static_cast<std::size_t>(rank)];
}

Listener* RealMesh::listener_of(Tag tag) const {
  const auto found = listeners_.find(tag);
  return found == listeners_.end() ? nullptr : found->second;
}

}  // namespace slipstream
