// SPDX-License-Identifier: Apache-2.0
//
// What the rendezvous and processes that join say to each other, as text: where one rank listens, and where all do.
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
  int seats = 1;  // seats of the job, as this process was told
  bool serves = false;
  std::uint32_t epoch = 0;  // the last group it was in; 0: none
  int rank = 0;             // its rank there
  bool holds = false;       // it holds the training
  Address address;

  std::string to_text() const;
  static JoinText from_text(const std::string& text);  // throws FabricError
  bool operator==(const JoinText&) const = default;
};

// Everybody has joined: which process has which rank, workers first. `key` is new for every group, so that connections
// of an earlier one do not fit.
struct Roster {
  struct Rank {
    int seat = 0;
    Address address;
    bool operator==(const Rank&) const = default;
  };
  std::uint32_t epoch = 1;  // number of this group in the job, from 1 on
  Key key{};
  int workers = 1;
  std::vector<Rank> ranks;

  std::string to_text() const;
  static Roster from_text(const std::string& text);  // throws FabricError
};

// A failure's first byte may say how it ends a rank. First of these: the user can fix it (ConfigError). Second: the
// user asked for it while the job was starting (Interrupted). Third: the supervisor is lost, so nobody else can tell
// the user (OrphanedError). Fourth: this worker came too late, the job has ended well (JobOver). Fifth: only this group
// of an elastic job ends (GroupFailed).
inline constexpr char kUsersFault = '\x02', kUsersWish = '\x03', kOrphaned = '\x04', kJobOver = '\x05',
                      kGroupOver = '\x06';
[[noreturn]] void throw_failure_text(const std::string& text, bool announced);

// For people: "rank 1", "server 0 (rank 2)" where ranks from `workers` on are servers, "the supervisor" for -1.
std::string rank_name(int rank, int workers);

}  // namespace slipstream
