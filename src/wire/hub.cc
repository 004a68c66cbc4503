// SPDX-License-Identifier: Apache-2.0
#include "wire/hub.h"

#include <fmt/ranges.h>
#include <slipstream/base/clock.h>
#include <slipstream/base/error.h>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "wire/doorway.h"
#include "wire/io_thread.h"
#include "wire/outbox.h"
#include "wire/patience.h"
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
      : options_(options),
        patience_(options.timeout_seconds),
        doorway_(io_, options.address, options.port),
        timer_(io_),
        began_at_(clock_.now()),
        gathering_(options.ranks, options.workers, options.elastic, options.join_timeout_seconds, began_at_) {
    if (options.encrypted) tls_.emplace(options.key);
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
      if (options_.elastic && !failure_) send_waiting_home();
      for (auto& [link, member] : members_) {
        member.out.bye();
        member.link->finish();
      }
      end_when_flushed();
    });
    thread_.join();
  }

  int port() const { return doorway_.port(); }
  std::vector<int> seats_that_hold() {
    const std::lock_guard lock(mutex_);
    return holders_;
  }

  void announce(const std::string& text) {
    asio::post(io_, [this, text] {
      told_ = true;
      spread(text, nullptr);
    });
  }

  void process_is_gone(int seat, const std::string& text) {
    asio::post(io_, [this, seat, text] {
      const bool was_in_group = gathering_.in_last_group(seat) && gathering_.anybody_at_work();
      for (const void* id : gathering_.of_seat(seat)) drop(static_cast<const Link*>(id));
      if (was_in_group) end_group(text, nullptr);
      advance();
    });
  }

  void job_is_over() {
    asio::post(io_, [this] { send_waiting_home(); });
  }

 private:
  struct Member {
    std::shared_ptr<Link> link;
    Outbox out{0, 0};
    double heard_at = 0;
    bool left = false;  // it said goodbye, or was sent away
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
        head.kind != Kind::kBye && head.kind != Kind::kHolds) {
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
    if (head.kind == Kind::kFailure) failed(link);
    if (head.kind == Kind::kHolds) {
      gathering_.holds(&link);
      advance();
    }
    if (head.kind == Kind::kBye) {
      member.left = true;
      gathering_.said_goodbye(&link);
    }
  }

  // In a running elastic job, a process that only waits ends nothing, and a lost peer ends only the group.
  void failed(Link& link) {
    const bool users = link.text[0] == kUsersFault || link.text[0] == kUsersWish;
    if (!options_.elastic || (users && (gathering_.at_work(&link) || !gathering_.complete()))) {
      return spread(link.text, &link);
    }
    if (gathering_.at_work(&link)) end_group(link.text, &link);
  }

  void join(Member& member, const JoinText& join) {
    const Link* link = member.link.get();
    if (const int seat = gathering_.seat_of(link); seat >= 0) {
      fail<FabricError>("one process claims {} and {}", rank_name(seat, options_.workers),
                        rank_name(join.seat, options_.workers));
    }
    if (over_) return send_away(member, kJobOver + std::string("the others have finished the job"));
    const std::string refusal = gathering_.join(link, join, clock_.now());
    if (!refusal.empty() && options_.elastic) return send_away(member, kUsersFault + refusal);
    if (!refusal.empty()) return spread(kUsersFault + refusal, nullptr);
    advance();
    if (!gathering_.knocks() || gathering_.at_work(link)) return;
    for (auto& [other, at_work] : members_) {
      if (gathering_.at_work(other)) tell(at_work, Kind::kKnock, "");
    }
  }

  // Forms a group if what has happened has completed one.
  void advance() {
    if (failure_) return;
    const auto roster = gathering_.form(clock_.now());
    {
      const std::lock_guard lock(mutex_);
      holders_ = gathering_.seats_that_hold();
    }
    if (!roster) return;
    for (auto& [link, member] : members_) {
      if (gathering_.at_work(link)) tell(member, Kind::kRoster, roster->to_text());
    }
  }

  void tell(Member& member, Kind kind, const std::string& text) {
    member.out.text(kind, text);
    asio::post(io_, [link = member.link] { link->wake(); });  // later, because waking may lose the link
  }

  void send_away(Member& member, const std::string& why) {
    member.left = true;
    tell(member, Kind::kFailure, why);
  }

  // The job has ended well: tells this to those that wait to join.
  void send_waiting_home() {
    over_ = true;
    for (auto& [link, member] : members_) {
      if (!gathering_.at_work(link)) send_away(member, kJobOver + std::string("the others have finished the job"));
    }
  }

  void drop(const Link* link) {
    const auto found = members_.find(link);
    if (found == members_.end()) return;
    found->second.link->close();
    gathering_.ended(link, clock_.now());
    members_.erase(found);
  }

  // The current group cannot go on; the next one may. `from`: the link we heard it from.
  void end_group(std::string text, const Link* from) {
    if (text[0] >= ' ') text = kGroupOver + text;
    for (auto& [link, member] : members_) {
      if (link != from && gathering_.at_work(link)) tell(member, Kind::kFailure, text);
    }
  }

  bool next_frame(Link& link, OutFrame& out) override {
    const auto found = members_.find(&link);
    return found != members_.end() && found->second.out.next(out);
  }
  void frame_left(Link& link, const OutFrame& out) override {
    if (const auto found = members_.find(&link); found != members_.end()) found->second.out.left(out);
  }

  // It knows the secret, so it is one of ours: the job cannot go on without it.
  void link_refused(Link& link, const std::string& why) override {
    const int seat = gathering_.seat_of(&link);
    spread(fmt::format("the rendezvous refused {}: {}",
                       seat < 0 ? "the process at " + link.address() : rank_name(seat, options_.workers), why),
           nullptr);
  }

  void link_lost(Link& link, bool closed, const std::string& why) override {
    const auto found = members_.find(&link);
    if (found == members_.end()) {
      if (!closed) refused(link, why);
      return;
    }
    link.close();
    const int seat = gathering_.seat_of(&link);
    const bool early = seat >= 0 && !gathering_.complete() && !found->second.left;
    const bool was_at_work = gathering_.at_work(&link), said_goodbye = found->second.left;
    gathering_.ended(&link, clock_.now());
    members_.erase(found);
    // A supervisor, if there is one, knows better why.
    if (options_.elastic && was_at_work && !said_goodbye && !options_.on_silent) {
      end_group(fmt::format("{} is lost: {}", rank_name(seat, options_.workers), why), nullptr);
    }
    if (early && !options_.elastic) {
      spread(fmt::format("{} is lost: it left before all had joined ({})", rank_name(seat, options_.workers), why),
             nullptr);
    }
    advance();
  }

  // Reports only the first few: a stranger must not fill our log.
  void refused(const Link& link, const std::string& why) {
    if (gathering_.complete() || refusals_ >= 5) return;
    ++refusals_;
    std::fprintf(stderr, "slipstream: the rendezvous refused %s: %s\n", link.address().c_str(), why.c_str());
  }

  // `from`: the link we heard it from; that process tells the user.
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
    if (now - ticked_at_ > 4 * kBeatSeconds) {  // we were asleep ourselves: nobody else is to blame
      for (auto& [link, member] : members_) member.heard_at = now;
    }
    ticked_at_ = now;
    doorway_.drop_late(now);
    for (auto& [link, member] : members_) member.out.beat();
    std::vector<std::shared_ptr<Link>> links;  // a copy, because waking may lose one
    for (auto& [link, member] : members_) links.push_back(member.link);
    for (auto& link : links) link->wake();
    look_for_silence(now);
    advance();
    if (!gathering_.complete() && !failure_) look_for_missing(now - began_at_);
    if (const std::string why = gathering_.hopeless(now); !why.empty()) spread(why, nullptr);
    timer_.expires_after(std::chrono::milliseconds(static_cast<int>(1000 * kBeatSeconds)));
    timer_.async_wait([this](const asio::error_code& error) {
      if (!error) tick();
    });
  }

  void look_for_silence(double now) {
    std::map<const Link*, std::string> lost;
    for (auto& [link, member] : members_) {
      const bool ours = gathering_.seat_of(link) >= 0 && !member.left;
      if (!ours || now - member.heard_at <= patience_.silence()) continue;
      lost[link] = fmt::format("no sign of life for {:.0f} s", now - member.heard_at);
    }
    for (const void* id : gathering_.stuck(now, patience_.waiting())) {
      lost[static_cast<const Link*>(id)] =
          fmt::format("it did not notice the end of its group for {:.0f} s", patience_.waiting());
    }
    for (const auto& [link, why] : lost) {
      const int seat = gathering_.seat_of(link);
      const std::string text = fmt::format("{} is lost: {}", rank_name(seat, options_.workers), why);
      if (!options_.elastic) return spread(text, nullptr);
      end_group(text, link);
      drop(link);
      if (options_.on_silent) options_.on_silent(seat);
    }
  }

  void look_for_missing(double waited) {
    std::vector<std::string> missing;
    for (const int seat : gathering_.missing()) missing.push_back(rank_name(seat, options_.workers));
    const std::string names = fmt::format("{} of {}", fmt::join(missing, ", "), options_.ranks);
    if (waited >
        options_.join_timeout_seconds + (options_.elastic ? kBeatSeconds : 0)) {  // after the last try to form a group
      spread(fmt::format("{} did not join within {:.0f} s", names, options_.join_timeout_seconds), nullptr);
    } else if (waited > kTellSeconds && options_.tells && !std::exchange(said_missing_, true)) {
      std::fprintf(stderr, "slipstream: waiting at %s:%d for %s, for %.0f s at most\n", options_.address.c_str(),
                   port(), names.c_str(), options_.join_timeout_seconds);
    }
  }

  // Ends when our last messages have left and the others have closed: closing first could destroy what they have not
  // read.
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
  const Patience patience_;
  const SteadyClock clock_;
  asio::io_context io_;
  Doorway doorway_;
  asio::steady_timer timer_;
  std::optional<TlsContext> tls_;
  int refusals_ = 0;
  bool said_missing_ = false;
  bool told_ = false;  // our owner announced the failure
  bool over_ = false;  // the job has ended well
  const double began_at_;
  double ticked_at_ = 0, closing_at_ = 0;
  Gathering gathering_;
  std::mutex mutex_;
  std::vector<int> holders_;  // seats; guarded by mutex_
  std::optional<std::string> failure_;
  std::map<const Link*, Member> members_;
  std::thread thread_;
};

Hub::Hub(const HubOptions& options) : state_(std::make_shared<State>(options)) {}
Hub::~Hub() { state_->close(); }
int Hub::port() const { return state_->port(); }
void Hub::announce(const std::string& text) { state_->announce(text); }
void Hub::process_is_gone(int seat, const std::string& text) { state_->process_is_gone(seat, text); }
std::vector<int> Hub::seats_that_hold() const { return state_->seats_that_hold(); }
void Hub::job_is_over() { state_->job_is_over(); }

}  // namespace slipstream
