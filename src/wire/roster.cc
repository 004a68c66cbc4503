// SPDX-License-Identifier: Apache-2.0
#include "wire/roster.h"

#include <slipstream/base/error.h>

#include <limits>
#include <sstream>

namespace slipstream {
namespace {

constexpr std::int64_t kMaxRanks = 1 << 16;

bool valid(const Address& address) {
  return !address.host.empty() && address.host.size() < 256 && address.port > 0 && address.port < 65536;
}

bool at_end(std::istream& in) { return (in >> std::ws).eof(); }

}  // namespace

std::string JoinText::to_text() const {
  return fmt::format("{} {} {} {} {} {} {} {}", seat, seats, serves ? 1 : 0, epoch, rank, holds ? 1 : 0, address.host,
                     address.port);
}

JoinText JoinText::from_text(const std::string& text) {
  JoinText join;
  std::istringstream in(text);
  std::int64_t serves = 0, epoch = 0, holds = 0;
  in >> join.seat >> join.seats >> serves >> epoch >> join.rank >> holds >> join.address.host >> join.address.port;
  join.serves = serves == 1;
  join.holds = holds == 1;
  join.epoch = static_cast<std::uint32_t>(epoch);
  const bool counts = join.seat >= 0 && join.seat < kMaxRanks && join.seats > 0 && (serves == 0 || serves == 1) &&
                      (holds == 0 || holds == 1) && join.rank >= 0 && join.rank < kMaxRanks && epoch >= 0 &&
                      epoch <= std::numeric_limits<std::uint32_t>::max();
  if (in.fail() || !at_end(in) || !counts || !valid(join.address)) {
    fail<FabricError>("a request to join is refused: it cannot be read; do all run the same program?");
  }
  return join;
}

std::string Roster::to_text() const {
  std::string text = fmt::format("{} {} {} {}", epoch, ranks.size(), workers, to_hex(key));
  for (const Rank& rank : ranks) text += fmt::format("\n{} {} {}", rank.seat, rank.address.host, rank.address.port);
  return text;
}

Roster Roster::from_text(const std::string& text) {
  Roster roster;
  std::istringstream in(text);
  std::int64_t epoch = 0, count = 0;  // signed: a stream would silently read -1 into an unsigned number
  std::string hex;
  in >> epoch >> count >> roster.workers >> hex;
  bool good = !in.fail() && epoch > 0 && epoch <= std::numeric_limits<std::uint32_t>::max() && count > 0 &&
              count <= kMaxRanks && roster.workers > 0 && roster.workers <= count && key_from_hex(hex).has_value();
  roster.key = key_from_hex(hex).value_or(Key{});
  roster.epoch = static_cast<std::uint32_t>(epoch);
  for (Rank rank; good && std::ssize(roster.ranks) < count;) {
    in >> rank.seat >> rank.address.host >> rank.address.port;
    good = !in.fail() && rank.seat >= 0 && rank.seat < kMaxRanks && valid(rank.address);
    if (good) roster.ranks.push_back(rank);
  }
  if (!good || !at_end(in)) fail<FabricError>("the rendezvous' answer cannot be read; do all run the same program?");
  return roster;
}

void throw_failure_text(const std::string& text, bool announced) {
  if (!text.empty() && text[0] == kUsersFault) throw ConfigError(text.substr(1));
  if (!text.empty() && text[0] == kUsersWish) throw Interrupted(text.substr(1));
  if (!text.empty() && text[0] == kOrphaned) throw OrphanedError(text.substr(1));
  if (!text.empty() && text[0] == kJobOver) throw JobOver(text.substr(1));
  if (!text.empty() && text[0] == kGroupOver) throw GroupFailed(text.substr(1));
  if (announced) throw AnnouncedError(text);
  throw FabricError(text);
}

std::string rank_name(int rank, int workers) {
  if (rank < 0) return "the supervisor";
  return rank < workers ? fmt::format("rank {}", rank) : fmt::format("server {} (rank {})", rank - workers, rank);
}

}  // namespace slipstream
