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

// A rank joins.
struct JoinText {
  int rank = 0;
  int ranks = 1;  // of the job, as it was told
  Address address;

  std::string to_text() const;
  static JoinText from_text(const std::string& text);  // throws FabricError
};

// Everybody has joined. `key` is fresh for every job: connections of an earlier one do not fit.
struct Roster {
  std::uint32_t epoch = 1;
  Key key{};
  std::vector<Address> ranks;

  std::string to_text() const;
  static Roster from_text(const std::string& text);  // throws FabricError
};

// A failure that the user can mend begins with the first of these bytes, and ends every rank as a ConfigError; one that
// the user asked for, while the job was starting, with the second, and ends every rank as Interrupted; the loss of the
// supervisor with the third: an OrphanedError, which nobody is left to tell the user of.
inline constexpr char kUsersFault = '\x02', kUsersWish = '\x03', kOrphaned = '\x04';
[[noreturn]] void throw_failure_text(const std::string& text, bool announced);

// For people: "rank 1", "server 0 (rank 2)" where ranks from `workers` on are servers, "the supervisor" for -1.
std::string rank_name(int rank, int workers);

}  // namespace slipstream
