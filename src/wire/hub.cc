// SPDX-License-Identifier: Apache-2.0
#include "wire/hub.h"

#include <fmt/ranges.h>
#include <slipstream/base/clock.h>
#include <slipstream/base/error.h>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <optional>
#include <thread>

#include "wire/doorway.h"
#include "wire/io_thread.h"
#include "wire/outbox.h"
#include "wire/roster.h"

namespace slipstream {
namespace {

using Kind = FrameHead::Kind;
constexpr double kBeatSeconds = 0.5;
constexpr double kFlushSeconds = 1;
constexpr double kTellSeconds = 3;

}  // namespace

class Hub::State final : public LinkEvents {
 public:
  explicit State(const HubOptions& options)
      : options_(options), doorway_(io_, options.address, options.port), timer_(io_) {
    if (options.encrypted) tls_.emplace(options.key);
    roster_.key = random_key();
    roster_.ranks.resize(static_cast<std::size_t>(options.ranks));
    began_at_ = clock_.now();
    asio::post(io_, [this] {
      doorway_.open(tls_ ? &*tls_ : nullptr, options_.key, {.epoch = 0, .from = Link::kHub}, *this);
      tick();
    });
    thread_ = std::thread([this] { run_io(io_); });
  }

  void close() {
    asio::post(io_, [this] {
      doorway_.close();
      closing_at_ = clock_.now();
      for (auto& [link, member] : members_) {
        member.out.bye();
        member.link->finish();
      }
      end_when_flushed();
    });
    thread_.join();
  }

  int port() const { return doorway_.port(); }

  void announce(const std::string& text) {
    asio::post(io_, [this, text] {
      told_ = true;
      spread(text, nullptr);
    });
  }

 private:
  struct Member {
    std::shared_ptr<Link> link;
    Outbox out{0, 0};
    int rank = Link::kNobody;  // once it has joined
    double heard_at = 0;
  };

  void link_ready(Link& link) override {
    if (!doorway_.let_in(link)) return link.close();
    Member& member = members_[&link];
    member.link = link.shared_from_this();
    member.heard_at = clock_.now();
    if (failure_) member.out.text(Kind::kFailure, *failure_);
  }

  void frame_begins(Link& link, const FrameHead& head) override {
    if (head.kind != Kind::kJoin && head.kind != Kind::kFailure && head.kind != Kind::kBeat &&
        head.kind != Kind::kBye) {
      fail<FabricError>("a frame is refused: the rendezvous takes none of its kind");
    }
    link.text.resize(head.length);
  }
  std::span<std::byte> payload_memory(Link& link, const FrameHead&, std::uint64_t at) override {
    return std::as_writable_bytes(std::span(link.text)).subspan(at);
  }

  void frame_arrived(Link& link, const FrameHead& head) override {
    const auto found = members_.find(&link);
    if (found == members_.end()) return;
    Member& member = found->second;
    member.heard_at = clock_.now();
    if (head.kind == Kind::kJoin) join(member, JoinText::from_text(link.text));
    if (head.kind == Kind::kFailure) spread(link.text, &link);
    if (head.kind == Kind::kBye) left_.insert_or_assign(&link, true);
  }

  void join(Member& member, const JoinText& join) {
    const auto ranks = static_cast<int>(roster_.ranks.size());
    if (join.ranks != ranks) {
      return spread(
          kUsersFault +
              fmt::format("rank {} was told of {} processes, the rendezvous of {}; start all with the same flags",
                          join.rank, join.ranks, ranks),
          nullptr);
    }
    if (member.rank != Link::kNobody) {
      fail<FabricError>("one process claims {} and {}", rank_name(member.rank, options_.workers),
                        rank_name(join.rank, options_.workers));
    }
    Address& place = roster_.ranks[static_cast<std::size_t>(join.rank)];
    if (place.port != 0) {
      return spread(
          kUsersFault +
              fmt::format("two processes claim rank {} of this job (from {} and {}); give every process its own "
                          "--rank",
                          join.rank, place.host, join.address.host),
          nullptr);
    }
    place = join.address;
    member.rank = join.rank;
    if (++joined_ < ranks) return;
    for (auto& [link, other] : members_) {
      if (other.rank == Link::kNobody) continue;
      other.out.text(Kind::kRoster, roster_.to_text());
      other.link->wake();
    }
  }

  bool next_frame(Link& link, OutFrame& out) override {
    const auto found = members_.find(&link);
    return found != members_.end() && found->second.out.next(out);
  }
  void frame_left(Link& link, const OutFrame& out) override {
    if (const auto found = members_.find(&link); found != members_.end()) found->second.out.left(out);
  }

  // It has the secret, so it is one of ours: the job cannot go on without it.
  void link_refused(Link& link, const std::string& why) override {
    const auto found = members_.find(&link);
    const int rank = found == members_.end() ? Link::kNobody : found->second.rank;
    spread(fmt::format("the rendezvous refused {}: {}",
                       rank == Link::kNobody ? "the process at " + link.address() : rank_name(rank, options_.workers),
                       why),
           nullptr);
  }

  void link_lost(Link& link, bool closed, const std::string& why) override {
    const auto found = members_.find(&link);
    if (found == members_.end()) {
      if (!closed) refused(link, why);
      return;
    }
    link.close();
    const int rank = found->second.rank;
    const bool early = rank != Link::kNobody && joined_ < static_cast<int>(roster_.ranks.size()) && !left_.count(&link);
    left_.erase(&link);
    members_.erase(found);
    if (early) {
      spread(fmt::format("{} is lost: it left before all had joined ({})", rank_name(rank, options_.workers), why),
             nullptr);
    }
  }

  // Only the first few: a stranger must not fill our log.
  void refused(const Link& link, const std::string& why) {
    if (joined_ == static_cast<int>(roster_.ranks.size()) || refusals_ >= 5) return;
    ++refusals_;
    std::fprintf(stderr, "slipstream: the rendezvous refused %s: %s\n", link.address().c_str(), why.c_str());
  }

  // `from`: who told us, and tells the user.
  void spread(const std::string& text, const Link* from) {
    if (failure_) return;
    failure_ = text;
    if (from == nullptr && !told_ && options_.on_failure) options_.on_failure(text.substr(text[0] < ' ' ? 1 : 0));
    for (auto& [link, member] : members_) {
      if (link == from) continue;
      member.out.text(Kind::kFailure, text);
      member.link->wake();
    }
  }

  void tick() {
    const double now = clock_.now();
    if (now - ticked_at_ > 4 * kBeatSeconds) {  // we ourselves were asleep: nobody else is to blame
      for (auto& [link, member] : members_) member.heard_at = now;
    }
    ticked_at_ = now;
    doorway_.drop_late(now);
    for (auto& [link, member] : members_) {
      if (now - member.heard_at > options_.timeout_seconds && member.rank != Link::kNobody && !left_.count(link)) {
        spread(fmt::format("{} is lost: no sign of life for {:.0f} s", rank_name(member.rank, options_.workers),
                           now - member.heard_at),
               nullptr);
      }
      member.out.beat();
    }
    std::vector<std::shared_ptr<Link>> links;  // waking may lose one
    for (auto& [link, member] : members_) links.push_back(member.link);
    for (auto& link : links) link->wake();
    if (joined_ < static_cast<int>(roster_.ranks.size()) && !failure_) look_for_missing(now - began_at_);
    timer_.expires_after(std::chrono::milliseconds(static_cast<int>(1000 * kBeatSeconds)));
    timer_.async_wait([this](const asio::error_code& error) {
      if (!error) tick();
    });
  }

  void look_for_missing(double waited) {
    std::vector<std::string> missing;
    for (std::size_t r = 0; r < roster_.ranks.size(); ++r) {
      if (roster_.ranks[r].port == 0) missing.push_back(rank_name(static_cast<int>(r), options_.workers));
    }
    const std::string names = fmt::format("{} of {}", fmt::join(missing, ", "), roster_.ranks.size());
    if (waited > options_.join_timeout_seconds) {
      spread(fmt::format("{} did not join within {:.0f} s", names, options_.join_timeout_seconds), nullptr);
    } else if (waited > kTellSeconds && options_.tells && !std::exchange(said_missing_, true)) {
      std::fprintf(stderr, "slipstream: waiting at %s:%d for %s, for %.0f s at most\n", options_.address.c_str(),
                   port(), names.c_str(), options_.join_timeout_seconds);
    }
  }

  // The last words have left, and the others have closed: closing first could destroy what they have not read yet.
  void end_when_flushed() {
    if (members_.empty() || clock_.now() - closing_at_ > kFlushSeconds) {
      for (auto& [link, member] : members_) member.link->close();
      io_.stop();
      return;
    }
    timer_.expires_after(std::chrono::milliseconds(5));
    timer_.async_wait([this](const asio::error_code&) { end_when_flushed(); });
  }

  const HubOptions options_;
  const SteadyClock clock_;
  asio::io_context io_;
  Doorway doorway_;
  asio::steady_timer timer_;
  std::optional<TlsContext> tls_;
  Roster roster_;  // ports are 0 until a rank has joined
  int joined_ = 0;
  int refusals_ = 0;
  bool said_missing_ = false;
  bool told_ = false;  // the failure, by our owner
  double began_at_ = 0, ticked_at_ = 0, closing_at_ = 0;
  std::optional<std::string> failure_;
  std::map<const Link*, Member> members_;
  std::map<const Link*, bool> left_;  // said goodbye
  std::thread thread_;
};

Hub::Hub(const HubOptions& options) : state_(std::make_shared<State>(options)) {}
Hub::~Hub() { state_->close(); }
int Hub::port() const { return state_->port(); }
void Hub::announce(const std::string& text) { state_->announce(text); }

}  // namespace slipstream
