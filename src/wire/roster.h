// SPDX-License-Identifier: Apache-2.0
//
// What the rendezvous and those who join say to each other, as text: where a rank listens, and where all do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/secret.h"

namespace slipstream {

struct Address {
  std::string host;
  int port = 0;

  bool operator==(const Address&) const = default;
};

// A process joins. Its seat is the number it was started with: its rank, unless the group has changed since.
struct JoinText {
  int seat = 0;
  int seats = 1;  // of the job, as it was told
  bool serves = false;
  std::uint32_t epoch = 0;  // the last group it was in; 0: none
  int rank = 0;             // that it had there
  bool holds = false;       // it brings a training
  Address address;

  std::string to_text() const;
  static JoinText from_text(const std::string& text);  // throws FabricError
  bool operator==(const JoinText&) const = default;
};

// Everybody has joined: who has which rank, workers first. `key` is fresh for every group: connections of an earlier one
// do not fit.
struct Roster {
  struct Rank {
    int seat = 0;
    Address address;
    bool operator==(const Rank&) const = default;
  };
  std::uint32_t epoch = 1;  // the how manieth group of the job this is
  Key key{};
  int workers = 1;
  std::vector<Rank> ranks;

  std::string to_text() const;
  static Roster from_text(const std::string& text);  // throws FabricError
};

// A failure that the user can mend begins with the first of these bytes, and ends every rank as a ConfigError; one that
// the user asked for, while the job was starting, with the second, and ends every rank as Interrupted; the loss of the
// supervisor with the third: an OrphanedError, which nobody is left to tell the user of. The fourth tells a worker that
// came too late that the job has ended well: a JobOver. The fifth ends the group of an elastic job: a GroupFailed.
inline constexpr char kUsersFault = '\x02', kUsersWish = '\x03', kOrphaned = '\x04', kJobOver = '\x05',
                      kGroupOver = '\x06';
[[noreturn]] void throw_failure_text(const std::string& text, bool announced);

// For people: "rank 1", "server 0 (rank 2)" where ranks from `workers` on are servers, "the supervisor" for -1.
std::string rank_name(int rank, int workers);

}  // namespace slipstream
