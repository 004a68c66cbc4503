// SPDX-License-Identifier: Apache-2.0
//
// How a mesh ends: peers that are lost or silent, a failure that is spread to all, and leaving in good order.
#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <asio/post.hpp>

#include "wire/real_mesh.h"

namespace slipstream {
namespace {

constexpr double kFlushSeconds = 1;       // for our last messages to leave
constexpr double kSupervisorSeconds = 1;  // the supervisor knows better why a worker is gone: wait for it to tell

}  // namespace

void RealMesh::link_refused(Link& link, const std::string& why) {
  if (link.peer == Link::kHub) {
    return give_up(fmt::format("{} at {}:{}: {}", hub_name(), options_.hub.host, options_.hub.port, why));
  }
  give_up(connection_failed(peer_of(link.peer), why));
}

void RealMesh::link_lost(Link& link, bool closed, const std::string& why) {
  std::erase_if(opening_, [&](const auto& one) { return one.get() == &link; });
  if (link.peer == Link::kNobody) {  // a stranger, or a peer that gave up
    doorway_->let_in(link);
    return;
  }
  Peer& peer = link.peer == Link::kHub ? hub_ : peer_of(link.peer);
  std::erase_if(peer.links, [&](const auto& one) { return one.get() == &link; });
  if (leaving_ || failure_spread_) return;
  if (&peer == &hub_) {
    if (joined_ && (!options_.supervised || hub_.left)) return;  // the hub has done its work
    if (hub_.left && hub_.links.empty() && !peers_meeting())
      return give_up("the rendezvous closed before all had joined");
    if (hub_.left) return;
    return give_up(orphaned() + fmt::format("{} at {}:{} {}: {}", hub_name(), options_.hub.host, options_.hub.port,
                                            hub_.joined ? "is lost" : "cannot be joined", why));
  }
  if (peer.left) {
    if (!peer.links.empty()) return;
    if (peer.in.expects()) return lose(peer, "it has left the job, and is still waited for");
    if (!peer.out.empty()) return lose(peer, "it has left the job, and is still sent to");
    return;
  }
  if (!peer.joined || !closed) return give_up(connection_failed(peer, why));
  if (!peer.links.empty()) return;  // only the last of several connections counts; a goodbye may come on another
  peer.lost = true;
  lose(peer, why);
}

std::string RealMesh::connection_failed(const Peer& peer, const std::string& why) const {
  return fmt::format("the connection between {} and {} failed: {}", name(rank_), name(peer.rank), why);
}

std::string RealMesh::orphaned() const { return options_.supervised ? std::string(1, kOrphaned) : ""; }

std::string RealMesh::hub_name() const {
  return options_.supervised ? "the supervisor" : fmt::format("the rendezvous in {}", name(0));
}

// The operation that this concerns: the one that is waited for, or one that is under way with this peer.
std::string RealMesh::during(const Peer& peer) {
  std::string what;
  {
    const std::lock_guard lock(mutex);
    what = waiting_for;
  }
  const Transfer* transfer = peer.in.awaited();
  if (transfer == nullptr) transfer = peer.out.first();
  if (what.empty() && transfer != nullptr) what = transfer->owner->what();
  return what.empty() ? "" : " during " + what;
}

// A peer is gone. A supervisor, if there is one, may know why: give it a moment to tell.
void RealMesh::lose(Peer& peer, const std::string& why) {
  const auto tell = [this, rank = peer.rank, why] {
    give_up(fmt::format("{} is lost: {} (seen by {}{})", name(rank), why, name(rank_), during(peer_of(rank))));
  };
  if (!options_.supervised) return tell();
  auto patience = std::make_shared<asio::steady_timer>(io_, millis(kSupervisorSeconds));
  patience->async_wait([patience, tell](const asio::error_code&) { tell(); });
}

void RealMesh::note_failure(const std::string& text, bool from_another) {
  const std::lock_guard lock(mutex);
  if (failure) return;
  const bool ends_group = options_.elastic && !from_another && text[0] >= ' ' && peers_meeting();
  failure = ends_group ? kGroupOver + text : text;
  announced = from_another;  // waiting threads are woken after the others were told
}

// Spreads the failure later: the caller may be working in an inbox, which spreading empties.
void RealMesh::give_up(const std::string& text) {
  note_failure(text, false);
  asio::post(io_, [this] { spread_failure(); });
}

// Tells the others, once, and ends everything.
void RealMesh::spread_failure() {
  if (std::exchange(failure_spread_, true)) return;
  std::string text;
  bool told_by_another = false;
  {
    const std::lock_guard lock(mutex);
    text = *failure;
    told_by_another = announced;
  }
  std::vector<Transfer*> ended;
  const auto take = [&ended](std::vector<Transfer*> more) { ended.insert(ended.end(), more.begin(), more.end()); };
  for (auto& peer : peers_) {
    if (!peer) continue;
    peer->out.text(Kind::kFailure, text);  // also one that we were told: our goodbye may overtake the one who told us
    mark(*peer);
    take(peer->in.abandon());
  }
  if (!told_by_another) hub_.out.text(Kind::kFailure, text);
  mark(hub_);
  for (auto& [tag, own] : own_) {
    take({own.sends.begin(), own.sends.end()});
    take({own.receives.begin(), own.receives.end()});
  }
  own_.clear();
  wake_marked();
  for (auto& peer : peers_) {
    if (!peer) continue;
    for (auto& link : peer->links) link->rescue();  // a half-sent frame's memory goes back to its owner
    take(peer->out.abandon());
  }
  for (Transfer* transfer : ended) transfer->owner->ended(*transfer, false);
  for (auto& [tag, listener] : listeners_) listener->failed(text);
  const std::lock_guard lock(mutex);
  spread_ = true;
  changed.notify_all();
}

void RealMesh::leave() {
  leaving_ = true;
  leaving_at_ = clock.now();
  if (doorway_) doorway_->close();
  for (auto& link : opening_) link->close();
  for_all_peers([](Peer& peer) {
    peer.out.bye();
    for (auto& link : peer.links) link->wake();
  });
  end_when_flushed();
}

// Ends when everything has left and the others have closed too: closing first could destroy what they have not read
// yet.
void RealMesh::end_when_flushed() {
  bool flushed = true, open = false;
  for_all_peers([&](Peer& peer) {
    for (auto& link : peer.links) {
      if (link->closed()) continue;
      open = true;
      if (!peer.out.empty() || !link->idle()) {
        flushed = false;
      } else {
        link->finish();
      }
    }
  });
  const double waited = clock.now() - leaving_at_;
  const double patience = failure_spread_ ? kFlushSeconds : silence_seconds_;
  if (!open || (flushed && waited > kFlushSeconds) || waited > patience) {
    for_all_peers([](Peer& peer) {
      for (auto& link : peer.links) link->close();
    });
    note_failure(fmt::format("{} has left the job", name(rank_)), false);
    spread_failure();
    std::vector<MeshCommand> late;
    {
      const std::lock_guard lock(mutex);
      closed_ = true;
      late.swap(commands_);
      changed.notify_all();
    }
    for (const MeshCommand& command : late) command.transfer->owner->ended(*command.transfer, false);
    io_.stop();
    return;
  }
  timer_.expires_after(millis(0.002));
  timer_.async_wait([this](const asio::error_code&) { end_when_flushed(); });
}

void RealMesh::tick() {
  if (leaving_) return;
  const double now = clock.now();
  if (now - heard_ourselves_at_ > 4 * beat_seconds_ + 0.5) {  // we were asleep ourselves: nobody else is to blame
    for_all_peers([now](Peer& peer) { peer.heard_at = now; });
  }
  heard_ourselves_at_ = now;
  if (doorway_) doorway_->drop_late(now);
  if (!failure_spread_) look_for_silence(now);
  for_all_peers([this](Peer& peer) {
    if (!peer.joined || peer.links.empty()) return;
    peer.out.beat();
    mark(peer);
  });
  wake_marked();
  timer_.expires_after(millis(beat_seconds_));
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) tick();
  });
}

void RealMesh::look_for_silence(double now) {
  const bool waits_for_its_turn = options_.elastic && hub_.joined && !peers_meeting();  // the hub decides how long
  if (!joined_ && !waits_for_its_turn &&
      now - began_at_ > options_.join_timeout_seconds + 2) {  // by now the hub would have told who is missing
    std::vector<std::string> missing;
    for (auto& peer : peers_) {
      if (peer && !peer->joined) missing.push_back(name(peer->rank));
    }
    return give_up(missing.empty() ? orphaned() + fmt::format("{} at {}:{} did not let {} join within {:.0f} s",
                                                              hub_name(), options_.hub.host, options_.hub.port,
                                                              name(rank_), options_.join_timeout_seconds)
                                   : fmt::format("{} did not connect to {} within {:.0f} s", fmt::join(missing, ", "),
                                                 name(rank_), options_.join_timeout_seconds));
  }
  for_all_peers([&](Peer& peer) {
    if (!peer.joined || peer.left || peer.links.empty() || now - peer.heard_at <= silence_seconds_) return;
    if (peer.rank == Link::kHub && joined_ && !options_.supervised) return;
    give_up(silent(peer, now));
  });
}

std::string RealMesh::silent(const Peer& peer, double now) {
  const bool hub = peer.rank == Link::kHub;
  return (hub ? orphaned() : "") + fmt::format("{} is lost: no sign of life for {:.0f} s (seen by {}{})",
                                               hub ? hub_name() : name(peer.rank), now - peer.heard_at, name(rank_),
                                               during(peer));
}

}  // namespace slipstream
