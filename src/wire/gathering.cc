// SPDX-License-Identifier: Apache-2.0
#include "wire/gathering.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace slipstream {

std::string Gathering::join(Id id, const JoinText& text, double now) {
  if (!elastic_ && (text.seats != seats_ || text.seat >= seats_)) {
    return fmt::format("rank {} was told of {} processes, the rendezvous of {}; start all with the same flags",
                       text.seat, text.seats, seats_);
  }
  int workers = 0;
  for (const auto& [other, guest] : guests_) {
    if (guest.text.seat == text.seat && (!guest.at_work || !elastic_)) {
      return fmt::format("two processes claim rank {} of this job (from {} and {}); give every process its own --rank",
                         text.seat, guest.text.address.host, text.address.host);
    }
    workers += guest.text.serves || guest.text.seat == text.seat ? 0 : 1;
  }
  const bool newcomer = text.epoch == 0 && !text.serves;
  if (elastic_ && newcomer && workers + static_cast<int>(returning_.size()) >= elastic_.max_workers) {
    return fmt::format("this job has {} workers, and may have no more (--elastic {}:{})", workers, elastic_.min_workers,
                       elastic_.max_workers);
  }
  guests_[id] = {text};
  returning_.erase(text.seat);
  held_ = held_ || text.holds;
  if (text.epoch == epoch_ && complete() && back_at_ < 0) back_at_ = now;
  return {};
}

void Gathering::holds(Id id) {
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;
  found->second.text.holds = true;
  held_ = true;
}

void Gathering::said_goodbye(Id id) {
  if (const auto found = guests_.find(id); found != guests_.end()) found->second.said_goodbye = true;
}

void Gathering::ended(Id id, double now) {
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;
  const Guest guest = found->second;
  guests_.erase(found);
  if (!guest.at_work) return;
  const bool is_back = std::any_of(guests_.begin(), guests_.end(),
                                   [&](const auto& other) { return other.second.text.seat == guest.text.seat; });
  if (guest.said_goodbye && !is_back) returning_[guest.text.seat] = now + kReturnSeconds;
  if (!anybody_at_work()) since_ = now;
}

std::optional<Roster> Gathering::form(double now) {
  std::erase_if(returning_, [now](const auto& seat) { return seat.second < now; });
  if (anybody_at_work() || !returning_.empty() || (complete() && !elastic_)) return {};
  const bool all = static_cast<int>(guests_.size()) >= seats_;
  const bool waited_enough = elastic_ && now - since_ > patience_;
  if (!complete() && !all && !waited_enough) return {};
  if (elastic_ && waiting(false) < elastic_.min_workers) return {};
  if (elastic_ && seats_ > workers_ && waiting(true) == 0) return {};
  const bool someone_knows = std::any_of(guests_.begin(), guests_.end(), [this](const auto& guest) {
    return held_ ? guest.second.text.holds : guest.second.text.epoch > 0 && !guest.second.text.serves;
  });
  if (complete() && !someone_knows) return {};
  Roster roster{.epoch = ++epoch_, .key = random_key(), .workers = waiting(false), .ranks = {}};
  for (const bool serves : {false, true}) {
    std::map<std::tuple<bool, int, int>, Roster::Rank> in_order;
    for (auto& [id, guest] : guests_) {
      guest.at_work = true;
      const JoinText& text = guest.text;
      const bool is_new = text.epoch == 0;
      if (text.serves == serves) in_order[{is_new, is_new ? 0 : text.rank, text.seat}] = {text.seat, text.address};
    }
    for (const auto& [key, rank] : in_order) roster.ranks.push_back(rank);
  }
  last_group_.clear();
  for (const Roster::Rank& rank : roster.ranks) last_group_.insert(rank.seat);
  back_at_ = -1;
  return roster;
}

bool Gathering::at_work(Id id) const {
  const auto found = guests_.find(id);
  return found != guests_.end() && found->second.at_work;
}

bool Gathering::anybody_at_work() const {
  return std::any_of(guests_.begin(), guests_.end(), [](const auto& guest) { return guest.second.at_work; });
}

std::vector<int> Gathering::seats_that_hold() const {
  std::vector<int> seats;
  for (const auto& [id, guest] : guests_) {
    if (guest.at_work && (guest.text.holds || guest.text.serves)) seats.push_back(guest.text.seat);
  }
  return seats;
}

std::vector<Gathering::Id> Gathering::of_seat(int seat) const {
  std::vector<Id> found;
  for (const auto& [id, guest] : guests_) {
    if (guest.text.seat == seat) found.push_back(id);
  }
  return found;
}

std::vector<Gathering::Id> Gathering::stuck(double now, double patience_seconds) const {
  std::vector<Id> found;
  if (!elastic_ || back_at_ < 0 || now - back_at_ <= patience_seconds) return found;
  for (const auto& [id, guest] : guests_) {
    if (guest.at_work) found.push_back(id);
  }
  return found;
}

int Gathering::seat_of(Id id) const {
  const auto found = guests_.find(id);
  return found == guests_.end() ? -1 : found->second.text.seat;
}

bool Gathering::knocks() const {
  const bool waits =
      std::any_of(guests_.begin(), guests_.end(), [](const auto& guest) { return !guest.second.at_work; });
  return elastic_ && waits && anybody_at_work();
}

std::vector<int> Gathering::missing() const {
  std::vector<int> seats;
  for (int seat = 0; seat < seats_; ++seat) {
    const bool here = std::any_of(guests_.begin(), guests_.end(),
                                  [seat](const auto& guest) { return guest.second.text.seat == seat; });
    if (!here) seats.push_back(seat);
  }
  return seats;
}

std::string Gathering::hopeless(double now) const {
  if (!complete() || anybody_at_work() || guests_.empty() || now - since_ <= patience_) return {};
  const int workers = waiting(false);
  if (workers < elastic_.min_workers) {
    return fmt::format("{} worker{} left of at least {} (--elastic), and no other came within {:.0f} s", workers,
                       workers == 1 ? " is" : "s are", elastic_.min_workers, patience_);
  }
  if (seats_ > workers_ && waiting(true) == 0) {
    return fmt::format("all servers are lost, and none came back within {:.0f} s", patience_);
  }
  return "all workers that held the training were lost; no group can go on from it, only --resume latest";
}

int Gathering::waiting(bool serves) const {
  return static_cast<int>(std::count_if(guests_.begin(), guests_.end(), [serves](const auto& guest) {
    return !guest.second.at_work && guest.second.text.serves == serves;
  }));
}

}  // namespace slipstream
