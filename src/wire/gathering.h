// SPDX-License-Identifier: Apache-2.0
//
// Gathering: decides when the processes at the rendezvous form a group. A job that is not elastic has one group, of all
// seats. An elastic job may have many: whenever all connections of the last group have ended, the processes that came
// back and those that wait for the first time form the next, with at least `min_workers`. If any process ever held the
// training, one that holds it must be among them; otherwise, after the first group, one that was in a group. Members of
// earlier groups get the lower ranks, in their old order, so that rank 0 knows what has happened.
//
// A state machine without sockets: the Hub tells it what happens, and when. I/O thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "wire/roster.h"

namespace slipstream {

// How many workers an elastic job may have; 0: it is not elastic.
struct Elastic {
  int min_workers = 0, max_workers = 0;
  explicit operator bool() const { return min_workers > 0; }
};

class Gathering {
 public:
  using Id = const void*;  // of a process: any pointer that its owner identifies it by

  Gathering(int seats, int workers, Elastic elastic, double patience_seconds, double now)
      : seats_(seats), workers_(workers), elastic_(elastic), patience_(patience_seconds), since_(now) {}

  // A process asks for its seat. Returns why it cannot have it; empty: it waits from now on.
  std::string join(Id id, const JoinText& text, double now);
  void holds(Id id);              // it holds the training from now on
  void said_goodbye(Id id);       // its connection will end; it may be back in a moment
  void ended(Id id, double now);  // its connection has ended
  // The next group, if one can form now. Its members are at work from then on.
  std::optional<Roster> form(double now);

  bool at_work(Id id) const;
  bool anybody_at_work() const;
  std::vector<int> seats_that_hold() const;  // seats that hold the training, and servers, at work
  bool in_last_group(int seat) const { return last_group_.count(seat) > 0; }
  std::vector<Id> of_seat(int seat) const;
  // Members still at work this long after the first of their group came back: they do not notice that the group has
  // ended.
  std::vector<Id> stuck(double now, double patience_seconds) const;
  int seat_of(Id id) const;                     // -1: it has not asked for one
  bool complete() const { return epoch_ > 0; }  // there was a group
  bool knocks() const;                          // a process waits while a group is at work
  std::vector<int> missing() const;             // seats of the first group that nobody has asked for yet
  // Why no next group will form, after the patience has run out; empty: one may still form.
  std::string hopeless(double now) const;

 private:
  static constexpr double kReturnSeconds = 2;  // how long a process may take to come back after a goodbye

  struct Guest {
    JoinText text;
    bool at_work = false, said_goodbye = false;
  };

  int waiting(bool serves) const;

  const int seats_, workers_;
  const Elastic elastic_;
  const double patience_;
  double since_;  // when the last group ended, or the job began
  std::uint32_t epoch_ = 0;
  std::map<Id, Guest> guests_;
  std::map<int, double> returning_;  // seats expected back, and until when
  std::set<int> last_group_;         // seats of the current or last group
  bool held_ = false;                // a process has held the training
  double back_at_ = -1;              // when the first member of the last group came back; -1: none has
};

}  // namespace slipstream
