// SPDX-License-Identifier: Apache-2.0
//
// Gathering: when the processes that have come to the rendezvous are a group. Of a job that is not elastic there is one
// group, of all seats. Of an elastic one there may be many: whenever all connections of the last group have ended, those
// who came back and those who wait for the first time form the next, of at least `min_workers`. One of them must hold the
// training, once anybody did; before, one that was in a group must be among them. Members of earlier groups have the lower
// ranks, in the order they had, so that rank 0 is one that knows what has happened.
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
  using Id = const void*;  // of a process: whatever the owner tells them apart by

  Gathering(int seats, int workers, Elastic elastic, double patience_seconds, double now)
      : seats_(seats), workers_(workers), elastic_(elastic), patience_(patience_seconds), since_(now) {}

  // A process wants its seat. Why it cannot have it; empty: it waits from now on.
  std::string join(Id id, const JoinText& text, double now);
  void holds(Id id);              // the training, from now on
  void said_goodbye(Id id);       // its connection will end; it may be back in a moment
  void ended(Id id, double now);  // its connection
  // The next group, once there is one. Its members are at work from then on.
  std::optional<Roster> form(double now);

  bool at_work(Id id) const;
  bool anybody_at_work() const;
  std::vector<int> seats_that_hold() const;  // the training; and those of servers at work
  bool in_last_group(int seat) const { return last_group_.count(seat) > 0; }
  std::vector<Id> of_seat(int seat) const;
  // Members that are still at work so long after the first of their group came back: they do not notice its end.
  std::vector<Id> stuck(double now, double patience_seconds) const;
  int seat_of(Id id) const;                     // -1: it has not asked for one
  bool complete() const { return epoch_ > 0; }  // there was a group
  bool knocks() const;                          // somebody waits while a group is at work
  std::vector<int> missing() const;             // of the first group: seats that nobody has asked for
  // Why there will be no next group, if the patience is at an end; empty: there is hope.
  std::string hopeless(double now) const;

 private:
  static constexpr double kReturnSeconds = 2;  // from a goodbye to being back

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
  std::map<int, double> returning_;  // seats that are expected back, until when
  std::set<int> last_group_;         // seats of the present group, or the last
  bool held_ = false;                // somebody came with a training
  double back_at_ = -1;              // when the first of the last group was back; -1: none is
};

}  // namespace slipstream
