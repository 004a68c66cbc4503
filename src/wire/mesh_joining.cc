// SPDX-License-Identifier: Apache-2.0
//
// How a mesh is built: first a connection to the hub, then, when the hub has sent the roster, one to every other rank.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <slipstream/base/error.h>
#include <sys/socket.h>

#include <algorithm>
#include <string_view>

#include "wire/real_mesh.h"

namespace slipstream {
namespace {

constexpr double kFarSeconds = 0.004;  // a peer whose connection takes longer than this is far away
constexpr int kStreamsToFar = 4;

// Does the kernel's congestion control take a lost packet for a full link, as all but bbr do? One such connection does
// not fill a fast, distant link that loses packets now and then; several do better.
bool slows_down_at_loss(int socket) {
  char name[16] = "";
  socklen_t length = sizeof name - 1;
  return getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0 || std::string_view(name) != "bbr";
}

}  // namespace

void RealMesh::connect_to_hub() {
  Introduction mine{.epoch = 0, .from = options_.rank, .to = Link::kHub};
  connect(options_.hub, options_.key, mine, hub_, "rendezvous");
}

// Tries again while nobody listens there yet.
void RealMesh::connect(const Address& to, const Key& key, const Introduction& mine, Peer& peer, const char* what) {
  asio::error_code error;
  auto address = asio::ip::make_address(to.host, error);
  if (error) {
    asio::ip::tcp::resolver resolver(io_);
    const auto found = resolver.resolve(to.host, "", error);
    if (error || found.empty()) {
      return give_up(fmt::format("the host name '{}' of the {} cannot be resolved", to.host, what));
    }
    address = found.begin()->endpoint().address();
  }
  auto socket = std::make_shared<asio::ip::tcp::socket>(io_);
  const double began = clock.now();
  socket->async_connect({address, static_cast<std::uint16_t>(to.port)}, [=, this, &peer](const asio::error_code& e) {
    if (failure_spread_ || leaving_) return;
    asio::error_code unknown;
    // While nobody listens at a port from the system's own range, a connection can connect to itself.
    const bool itself = !e && socket->local_endpoint(unknown) == socket->remote_endpoint(unknown);
    if (itself) socket->close(unknown);
    if (e || itself) {
      // Ranks on the roster have listened before, so this one is gone: in an elastic job the others go on without it.
      if (options_.elastic && peer.rank != Link::kHub && !itself) return give_up(connection_failed(peer, e.message()));
      if (clock.now() - began_at_ > options_.join_timeout_seconds) {
        return give_up(
            fmt::format("{} cannot reach the {} at {}:{} ({}); is rank 0 running there, and do "
                        "--master-addr and --master-port name it?",
                        name(rank_), what, to.host, to.port, e.message()));
      }
      auto again = std::make_shared<asio::steady_timer>(io_, millis(0.1));
      again->async_wait([=, this, &peer](const asio::error_code&) {
        if (!failure_spread_ && !leaving_) connect(to, key, mine, peer, what);
      });
      return;
    }
    Introduction said = mine;
    if (peer.rank != Link::kHub && said.stream == 0) {
      const bool several = clock.now() - began > kFarSeconds && slows_down_at_loss(socket->native_handle());
      peer.streams = static_cast<std::size_t>(options_.streams > 0 ? options_.streams : several ? kStreamsToFar : 1);
      for (std::size_t s = 1; s < peer.streams; ++s) {
        Introduction more = mine;
        more.stream = static_cast<std::uint16_t>(s);
        more.streams = static_cast<std::uint16_t>(peer.streams);
        connect(to, key, more, peer, what);
      }
      said.streams = static_cast<std::uint16_t>(peer.streams);
    }
    auto link = std::make_shared<Link>(std::move(*socket), tls_ ? &*tls_ : nullptr, Side::kConnects, key, said, *this);
    link->peer = peer.rank;
    link->opened_at = clock.now();
    opening_.push_back(link);
    link->start();
  });
}

void RealMesh::link_ready(Link& link) {
  if (link.peer == Link::kNobody) {  // it came to us
    const Introduction& theirs = link.theirs();
    if (!doorway_->let_in(link)) return link.close();
    Peer* peer = theirs.from > rank_ && theirs.from < ranks_ ? &peer_of(theirs.from) : nullptr;
    if (peer == nullptr || peer->joined || peer->links.size() >= theirs.streams) return link.close();
    peer->streams = theirs.streams;
    link.peer = theirs.from;
    peer->links.push_back(link.shared_from_this());
  } else {
    Peer& peer = link.peer == Link::kHub ? hub_ : peer_of(link.peer);
    peer.links.push_back(link.shared_from_this());
    std::erase_if(opening_, [&](const auto& one) { return one.get() == &link; });
  }
  Peer& peer = link.peer == Link::kHub ? hub_ : peer_of(link.peer);
  peer.heard_at = clock.now();
  if (peer.links.size() < peer.streams) return;
  peer.joined = true;
  if (&peer == &hub_ && !options_.early_failure.empty()) {
    note_failure(kUsersFault + fmt::format("{}: {}", name(rank_), options_.early_failure), false);
    return spread_failure();
  }
  if (&peer == &hub_) {
    hub_.out.text(Kind::kJoin, JoinText{.seat = options_.rank,
                                        .seats = options_.ranks,
                                        .serves = options_.serves,
                                        .epoch = options_.epoch,
                                        .rank = options_.last_rank,
                                        .holds = options_.holds,
                                        .address = {options_.address, doorway_->port()}}
                                   .to_text());
    return;  // the link writes it next
  }
  join_when_all_are_met();
}

void RealMesh::join_when_all_are_met() {
  if (std::all_of(peers_.begin(), peers_.end(), [](const auto& one) { return one == nullptr || one->joined; })) {
    become_joined();
  }
}

void RealMesh::meet_everybody(const Roster& roster) {
  if ((static_cast<int>(roster.ranks.size()) != ranks_ && !options_.elastic) || epoch_ != 0) {
    slipstream::fail<FabricError>("a roster of {} ranks is refused: this job has {}, and needs one",
                                  roster.ranks.size(), ranks_);
  }
  const auto ours = std::find_if(roster.ranks.begin(), roster.ranks.end(),
                                 [this](const Roster::Rank& one) { return one.seat == options_.rank; });
  if (ours == roster.ranks.end()) slipstream::fail<FabricError>("a roster without this process is refused");
  epoch_ = roster.epoch;
  began_at_ = clock.now();
  rank_ = static_cast<int>(ours - roster.ranks.begin());
  ranks_ = static_cast<int>(roster.ranks.size());
  workers_ = roster.workers;
  peers_.resize(roster.ranks.size());
  seats_.clear();
  for (const Roster::Rank& one : roster.ranks) seats_.push_back(one.seat);
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    peers_[static_cast<std::size_t>(r)] =
        std::make_unique<Peer>(Peer{r,
                                    Inbox(
                                        r, window_, [this](Tag tag) { return listener_of(tag); }, *this),
                                    Outbox(epoch_, window_)});
    peer_of(r).heard_at = clock.now();
  }
  const Introduction mine{.epoch = epoch_, .from = rank_, .to = 0};
  doorway_->open(tls_ ? &*tls_ : nullptr, roster.key, mine, *this);
  for (int r = 0; r < rank_; ++r) {
    Introduction to_them = mine;
    to_them.to = r;
    connect(roster.ranks[static_cast<std::size_t>(r)].address, roster.key, to_them, peer_of(r), "mesh");
  }
  join_when_all_are_met();  // at once, if there is nobody else
}

void RealMesh::become_joined() {
  const std::lock_guard lock(mutex);
  joined_ = true;
  changed.notify_all();
}

}  // namespace slipstream
