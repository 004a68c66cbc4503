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

std::string JoinText::to_text() const { return fmt::format("{} {} {} {}", rank, ranks, address.host, address.port); }

JoinText JoinText::from_text(const std::string& text) {
  JoinText join;
  std::istringstream in(text);
  in >> join.rank >> join.ranks >> join.address.host >> join.address.port;
  if (in.fail() || !at_end(in) || join.rank < 0 || join.rank >= join.ranks || !valid(join.address)) {
    fail<FabricError>("a request to join is refused: it cannot be read; do all run the same program?");
  }
  return join;
}

std::string Roster::to_text() const {
  std::string text = fmt::format("{} {} {}", epoch, ranks.size(), to_hex(key));
  for (const Address& rank : ranks) text += fmt::format("\n{} {}", rank.host, rank.port);
  return text;
}

Roster Roster::from_text(const std::string& text) {
  Roster roster;
  std::istringstream in(text);
  std::int64_t epoch = 0, count = 0;  // signed: a stream reads -1 into an unsigned number without a word
  std::string hex;
  in >> epoch >> count >> hex;
  bool good = !in.fail() && epoch > 0 && epoch <= std::numeric_limits<std::uint32_t>::max() && count > 0 &&
              count <= kMaxRanks && key_from_hex(hex).has_value();
  roster.key = key_from_hex(hex).value_or(Key{});
  roster.epoch = static_cast<std::uint32_t>(epoch);
  for (Address address; good && std::ssize(roster.ranks) < count;) {
    in >> address.host >> address.port;
    good = !in.fail() && valid(address);
    if (good) roster.ranks.push_back(address);
  }
  if (!good || !at_end(in)) fail<FabricError>("the rendezvous' answer cannot be read; do all run the same program?");
  return roster;
}

void throw_failure_text(const std::string& text, bool announced) {
  if (!text.empty() && text[0] == kUsersFault) throw ConfigError(text.substr(1));
  if (!text.empty() && text[0] == kUsersWish) throw Interrupted(text.substr(1));
  if (!text.empty() && text[0] == kOrphaned) throw OrphanedError(text.substr(1));
  if (announced) throw AnnouncedError(text);
  throw FabricError(text);
}

std::string rank_name(int rank, int workers) {
  if (rank < 0) return "the supervisor";
  return rank < workers ? fmt::format("rank {}", rank) : fmt::format("server {} (rank {})", rank - workers, rank);
}

}  // namespace slipstream
