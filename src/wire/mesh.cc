// SPDX-License-Identifier: Apache-2.0
#include "wire/mesh.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <slipstream/base/error.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <cstring>
#include <deque>
#include <map>
#include <thread>

#include "wire/doorway.h"
#include "wire/inbox.h"
#include "wire/io_thread.h"
#include "wire/outbox.h"

namespace slipstream {
namespace {

using Kind = FrameHead::Kind;
constexpr double kFlushSeconds = 1;       // for last words to leave
constexpr double kSupervisorSeconds = 1;  // it knows better than we why a worker is gone: wait for its word
constexpr double kFarSeconds = 0.004;     // a peer whose connection takes longer than this is far away
constexpr int kStreamsToFar = 4;

// An answer of a listener: leaves by itself and is used again.
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

// Does the kernel's congestion control take a lost packet for a full link, as all but bbr do? One such connection does
// not fill a long fat pipe that loses packets now and then; several do better.
bool slows_down_at_loss(int socket) {
  char name[16] = "";
  socklen_t length = sizeof name - 1;
  return getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0 || std::string_view(name) != "bbr";
}

std::chrono::milliseconds millis(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

class RealMesh final : public MeshCore, public LinkEvents, public Answers {
 public:
  explicit RealMesh(const MeshOptions& options)
      : options_(options),
        beat_seconds_(std::clamp(options.timeout_seconds / 10, 0.05, 0.5)),
        window_(options.window_bytes != 0
                    ? options.window_bytes
                    : std::clamp<std::uint64_t>((128ULL << 20) / static_cast<std::uint64_t>(std::max(1, options.ranks)),
                                                1 << 20, 16 << 20)),
        timer_(io_),
        hub_{Link::kHub,
             Inbox(
                 Link::kHub, 0, [](Tag) { return nullptr; }, *this),
             Outbox(0, 0)} {
    if (options.ranks > 1 && options.early_failure.empty()) doorway_.emplace(io_, options.address, 0);
    if (options.encrypted) tls_.emplace(options.key);
    for (int r = 0; r < options.ranks; ++r) peers_.push_back(nullptr);
  }

  void start() {
    began_at_ = heard_ourselves_at_ = clock.now();
    thread_ = std::thread([this] { run_io(io_); });
    asio::post(io_, [this] {
      if (options_.ranks > 1) {
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
      fail(kUsersWish + fmt::format("{} was asked to stop while the job was starting", name(options_.rank)));
      lock.lock();
    }
    if (!failure) return;
    const std::string text = *failure;
    const bool told = announced;
    lock.unlock();
    close();
    throw_failure_text(text, told);
  }

  void close() {
    if (!thread_.joinable()) return;
    asio::post(io_, [this] { leave(); });
    thread_.join();
  }

  int rank() const override { return options_.rank; }
  std::string name(int rank) const override { return rank_name(rank, options_.workers); }
  double timeout_seconds() const override { return options_.timeout_seconds; }
  int streams(int peer) const {
    const auto& one = peers_[static_cast<std::size_t>(peer)];
    return one ? static_cast<int>(one->streams) : 0;
  }

  int port() const { return doorway_ ? doorway_->port() : 0; }

  void submit(std::span<const MeshCommand> commands) override {
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

  void listen(Tag tag, Listener* listener) override {
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

  void fail(const std::string& text) override {
    note_failure(text, false);
    asio::post(io_, [this] { spread_failure(); });
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return spread_ || closed_; });
  }

  void stalled(const std::vector<int>& peers, const std::string& text) override {
    asio::post(io_, [this, peers, text] {
      const double now = clock.now();
      for (const int rank : peers) {
        const Peer& peer = peer_of(rank);
        if (!peer.left && now - peer.heard_at > options_.timeout_seconds / 2) note_failure(silent(peer, now), false);
      }
      note_failure(text, false);
      spread_failure();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return spread_ || closed_; });
  }

  // Answers of a listener, on the I/O thread.
  void send(int to, Tag tag, const LetterHead& head, std::shared_ptr<const Floats> body) override {
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

 private:
  // ---- joining

  void connect_to_hub() {
    Introduction mine{.epoch = 0, .from = options_.rank, .to = Link::kHub};
    connect(options_.hub, options_.key, mine, hub_, "rendezvous");
  }

  // Tries again while nobody listens there yet.
  void connect(const Address& to, const Key& key, const Introduction& mine, Peer& peer, const char* what) {
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
      // While nobody listens at a port of the system's own range, a connection can meet itself.
      const bool itself = !e && socket->local_endpoint(unknown) == socket->remote_endpoint(unknown);
      if (itself) socket->close(unknown);
      if (e || itself) {
        if (clock.now() - began_at_ > options_.join_timeout_seconds) {
          return give_up(
              fmt::format("{} cannot reach the {} at {}:{} ({}); is rank 0 running there, and do "
                          "--master-addr and --master-port name it?",
                          name(options_.rank), what, to.host, to.port, e.message()));
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
      auto link =
          std::make_shared<Link>(std::move(*socket), tls_ ? &*tls_ : nullptr, Side::kConnects, key, said, *this);
      link->peer = peer.rank;
      link->opened_at = clock.now();
      opening_.push_back(link);
      link->start();
    });
  }

  void link_ready(Link& link) override {
    if (link.peer == Link::kNobody) {  // it came to us
      const Introduction& theirs = link.theirs();
      if (!doorway_->let_in(link)) return link.close();
      Peer* peer = theirs.from > options_.rank && theirs.from < options_.ranks ? &peer_of(theirs.from) : nullptr;
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
      note_failure(kUsersFault + fmt::format("{}: {}", name(options_.rank), options_.early_failure), false);
      return spread_failure();
    }
    if (&peer == &hub_) {
      hub_.out.text(Kind::kJoin,
                    JoinText{options_.rank, options_.ranks, {options_.address, doorway_->port()}}.to_text());
      return;  // the link writes next
    }
    if (std::all_of(peers_.begin(), peers_.end(),
                    [this](const auto& one) { return one == nullptr || one->rank == options_.rank || one->joined; })) {
      become_joined();
    }
  }

  void meet_everybody(const Roster& roster) {
    if (static_cast<int>(roster.ranks.size()) != options_.ranks || epoch_ != 0) {
      slipstream::fail<FabricError>("a roster of {} ranks is refused: this job has {}, and needs one",
                                    roster.ranks.size(), options_.ranks);
    }
    epoch_ = roster.epoch;
    for (int r = 0; r < options_.ranks; ++r) {
      if (r == options_.rank) continue;
      peers_[static_cast<std::size_t>(r)] =
          std::make_unique<Peer>(Peer{r,
                                      Inbox(
                                          r, window_, [this](Tag tag) { return listener_of(tag); }, *this),
                                      Outbox(epoch_, window_)});
      peer_of(r).heard_at = clock.now();
    }
    const Introduction mine{.epoch = epoch_, .from = options_.rank, .to = 0};
    doorway_->open(tls_ ? &*tls_ : nullptr, roster.key, mine, *this);
    for (int r = 0; r < options_.rank; ++r) {
      Introduction to_them = mine;
      to_them.to = r;
      connect(roster.ranks[static_cast<std::size_t>(r)], roster.key, to_them, peer_of(r), "mesh");
    }
  }

  void become_joined() {
    const std::lock_guard lock(mutex);
    joined_ = true;
    changed.notify_all();
  }

  // ---- frames

  void frame_begins(Link& link, const FrameHead& head) override {
    if (head.kind == Kind::kData) {
      if (link.peer == Link::kHub) slipstream::fail<FabricError>("a frame is refused: the rendezvous sends no data");
      return peer_of(link.peer).in.begins(head);
    }
    if (head.kind == Kind::kJoin || (head.kind == Kind::kRoster && link.peer != Link::kHub)) {
      slipstream::fail<FabricError>("a frame is refused: a rank takes none of its kind");
    }
    link.text.resize(head.length);
  }

  std::span<std::byte> payload_memory(Link& link, const FrameHead& head, std::uint64_t at) override {
    if (head.kind == Kind::kData) return peer_of(link.peer).in.memory(head, at);
    return std::as_writable_bytes(std::span(link.text)).subspan(at);
  }

  void frame_arrived(Link& link, const FrameHead& head) override {
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
      case Kind::kBeat:
      case Kind::kJoin:
        break;
    }
  }

  void give_credit(Peer& peer, int lane) {
    const std::uint64_t taken = peer.in.taken(lane);
    std::uint64_t& told = peer.told[static_cast<std::size_t>(lane)];
    if (taken - told < window_ / 4) return;
    told = taken;
    peer.out.tell_taken(lane, taken);
    mark(peer);
  }

  bool next_frame(Link& link, OutFrame& out) override {
    return (link.peer == Link::kHub ? hub_ : peer_of(link.peer)).out.next(out);
  }
  void frame_left(Link& link, const OutFrame& out) override {
    (link.peer == Link::kHub ? hub_ : peer_of(link.peer)).out.left(out);
  }

  void link_refused(Link& link, const std::string& why) override {
    if (link.peer == Link::kHub) {
      return give_up(fmt::format("{} at {}:{}: {}", hub_name(), options_.hub.host, options_.hub.port, why));
    }
    give_up(connection_failed(peer_of(link.peer), why));
  }

  void link_lost(Link& link, bool closed, const std::string& why) override {
    std::erase_if(opening_, [&](const auto& one) { return one.get() == &link; });
    if (link.peer == Link::kNobody) {  // a stranger, or one who gave up
      doorway_->let_in(link);
      return;
    }
    Peer& peer = link.peer == Link::kHub ? hub_ : peer_of(link.peer);
    std::erase_if(peer.links, [&](const auto& one) { return one.get() == &link; });
    if (leaving_ || failure_spread_) return;
    if (&peer == &hub_) {
      if (joined_ && (!options_.supervised || hub_.left)) return;  // its work is done
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
    if (!peer.links.empty()) return;  // of several connections the last one tells; a goodbye may come on another
    peer.lost = true;
    lose(peer, why);
  }

  std::string connection_failed(const Peer& peer, const std::string& why) const {
    return fmt::format("the connection between {} and {} failed: {}", name(options_.rank), name(peer.rank), why);
  }

  bool peers_meeting() const { return epoch_ != 0; }
  std::string orphaned() const { return options_.supervised ? std::string(1, kOrphaned) : ""; }
  std::string hub_name() const {
    return options_.supervised ? "the supervisor" : fmt::format("the rendezvous in {}", name(0));
  }

  // Which operation this concerns: the one that is waited for, or one that is under way with this peer.
  std::string during(const Peer& peer) {
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

  // A peer is gone. The supervisor, where there is one, may know why: it has a moment to tell.
  void lose(Peer& peer, const std::string& why) {
    const auto tell = [this, rank = peer.rank, why] {
      give_up(
          fmt::format("{} is lost: {} (seen by {}{})", name(rank), why, name(options_.rank), during(peer_of(rank))));
    };
    if (!options_.supervised) return tell();
    auto patience = std::make_shared<asio::steady_timer>(io_, millis(kSupervisorSeconds));
    patience->async_wait([patience, tell](const asio::error_code&) { tell(); });
  }

  // ---- messages

  void drain() {
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
      } catch (const std::exception& e) {  // nobody has it: neither inbox nor outbox
        const std::string with = t.peer == options_.rank ? "" : " with " + name(t.peer);
        give_up(fmt::format("{}{}: {}", name(options_.rank), with, e.what()));
        t.owner->ended(t, false);
      }
    }
    draining_.clear();
    wake_marked();
  }

  void start_send(Transfer& t) {
    if (t.peer == options_.rank) {
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

  void start_receive(Transfer& t) {
    if (t.peer == options_.rank) {
      own_[t.tag].receives.push_back(&t);
      return meet(own_[t.tag]);
    }
    Peer& peer = peer_of(t.peer);
    const int lane = lane_of(t.tag);
    peer.in.post(t);  // may end it: its owner may be gone
    give_credit(peer, lane);
    if (peer.in.expects() && peer.left && peer.links.empty())
      lose(peer, "it has left the job, and is still waited for");
  }

  void withdraw(Transfer& t) {
    if (t.peer != options_.rank) {
      peer_of(t.peer).in.withdraw(t);
    } else if (std::erase(own_[t.tag].receives, &t) > 0) {
      t.owner->ended(t, false);
    }
    t.owner->ended(t, false);  // the command itself
  }

  // Sends and receives of ourselves, in order.
  void meet(Own& own) {
    while (!own.sends.empty() && !own.receives.empty()) {
      Transfer& from = *own.sends.front();
      Transfer& to = *own.receives.front();
      own.sends.pop_front();
      own.receives.pop_front();
      if (from.parts.bytes() != to.parts.bytes()) {
        give_up(fmt::format("{} sent {} bytes to itself where {} are received", name(options_.rank), from.parts.bytes(),
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

  void mark(Peer& peer) {
    if (!std::exchange(peer.woken, true)) marked_.push_back(&peer);
  }
  void wake_marked() {
    for (std::size_t i = 0; i < marked_.size(); ++i) {  // it may grow
      Peer& peer = *marked_[i];
      peer.woken = false;
      for (std::size_t l = 0; l < peer.links.size(); ++l) peer.links[l]->wake();
    }
    marked_.clear();
  }

  // ---- failing and leaving

  void note_failure(const std::string& text, bool from_another) {
    const std::lock_guard lock(mutex);
    if (failure) return;
    failure = text;
    announced = from_another;  // those who wait are told when the others have been
  }

  // Later, since whoever finds it may be in the middle of an inbox, and that is emptied then.
  void give_up(const std::string& text) {
    note_failure(text, false);
    asio::post(io_, [this] { spread_failure(); });
  }

  // Tells the others, once, and ends everything.
  void spread_failure() {
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
      if (!told_by_another) peer->out.text(Kind::kFailure, text);
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
      for (auto& link : peer->links) link->rescue();  // a half-sent frame: its memory goes back to its owner
      take(peer->out.abandon());
    }
    for (Transfer* transfer : ended) transfer->owner->ended(*transfer, false);
    for (auto& [tag, listener] : listeners_) listener->failed(text);
    const std::lock_guard lock(mutex);
    spread_ = true;
    changed.notify_all();
  }

  void leave() {
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

  template <typename Work>
  void for_all_peers(const Work& work) {
    for (auto& peer : peers_) {
      if (peer) work(*peer);
    }
    work(hub_);
  }

  // What is under way leaves, then the others close as well: closing first could destroy what they have not read yet.
  void end_when_flushed() {
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
    const double patience = failure_spread_ ? kFlushSeconds : options_.timeout_seconds;
    if (!open || (flushed && waited > kFlushSeconds) || waited > patience) {
      for_all_peers([](Peer& peer) {
        for (auto& link : peer.links) link->close();
      });
      note_failure(fmt::format("{} has left the job", name(options_.rank)), false);
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

  void tick() {
    if (leaving_) return;
    const double now = clock.now();
    if (now - heard_ourselves_at_ > 4 * beat_seconds_ + 0.5) {  // we ourselves were asleep: nobody else is to blame
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

  void look_for_silence(double now) {
    if (!joined_ && now - began_at_ > options_.join_timeout_seconds + 2) {  // the hub has told before who is missing
      std::vector<std::string> missing;
      for (auto& peer : peers_) {
        if (peer && !peer->joined) missing.push_back(name(peer->rank));
      }
      return give_up(missing.empty()
                         ? fmt::format("{} at {}:{} did not let {} join within {:.0f} s", hub_name(), options_.hub.host,
                                       options_.hub.port, name(options_.rank), options_.join_timeout_seconds)
                         : fmt::format("{} did not connect to {} within {:.0f} s", fmt::join(missing, ", "),
                                       name(options_.rank), options_.join_timeout_seconds));
    }
    for_all_peers([&](Peer& peer) {
      if (!peer.joined || peer.left || peer.links.empty() || now - peer.heard_at <= options_.timeout_seconds) return;
      if (peer.rank == Link::kHub && joined_ && !options_.supervised) return;
      give_up(silent(peer, now));
    });
  }

  std::string silent(const Peer& peer, double now) {
    const bool hub = peer.rank == Link::kHub;
    return (hub ? orphaned() : "") + fmt::format("{} is lost: no sign of life for {:.0f} s (seen by {}{})",
                                                 hub ? hub_name() : name(peer.rank), now - peer.heard_at,
                                                 name(options_.rank), during(peer));
  }

  Peer& peer_of(int rank) {
    check(rank >= 0 && rank < options_.ranks && rank != options_.rank && peers_[static_cast<std::size_t>(rank)],
          "a message for rank {}; there are {} ranks, and this is {}", rank, options_.ranks, options_.rank);
    return *peers_[static_cast<std::size_t>(rank)];
  }
  Listener* listener_of(Tag tag) const {
    const auto found = listeners_.find(tag);
    return found == listeners_.end() ? nullptr : found->second;
  }

  const MeshOptions options_;
  const double beat_seconds_;
  const std::uint64_t window_;
  asio::io_context io_;
  asio::steady_timer timer_;
  std::optional<Doorway> doorway_;
  std::optional<TlsContext> tls_;
  std::thread thread_;

  // Guarded by the mutex.
  std::vector<MeshCommand> commands_;
  bool joined_ = false, closed_ = false, spread_ = false;

  // The I/O thread's.
  std::uint32_t epoch_ = 0;
  Peer hub_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; ours is null
  std::vector<std::shared_ptr<Link>> opening_;
  std::vector<Peer*> marked_;  // whose links shall look for something to send
  std::map<Tag, Own> own_;
  std::map<Tag, Listener*> listeners_;
  std::map<std::pair<int, Tag>, std::uint64_t> answered_;
  std::vector<std::unique_ptr<Answer>> answers_;
  std::vector<Answer*> spare_answers_;
  std::vector<MeshCommand> draining_;
  bool failure_spread_ = false, leaving_ = false;
  double began_at_ = 0, heard_ourselves_at_ = 0, leaving_at_ = 0;
};

}  // namespace

void MeshCore::throw_failure() const { throw_failure_text(*failure, announced); }

Mesh::Mesh(const MeshOptions& options) {
  auto core = std::make_shared<RealMesh>(options);
  core->start();
  core_ = std::move(core);
}

Mesh::~Mesh() { static_cast<RealMesh&>(*core_).close(); }

int Mesh::streams(int peer) const { return static_cast<const RealMesh&>(*core_).streams(peer); }
int Mesh::port() const { return static_cast<const RealMesh&>(*core_).port(); }

}  // namespace slipstream
