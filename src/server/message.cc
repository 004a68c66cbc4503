// SPDX-License-Identifier: Apache-2.0
#include "server/message.h"

#include <slipstream/base/error.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <sstream>
#include <utility>

namespace slipstream {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

struct Head {
  char magic[4];
  std::uint8_t version, kind;
  std::uint16_t from;
  std::uint32_t part, zero;
  std::int64_t round, after;
  double value;
  std::uint64_t payload_bytes;
};
static_assert(sizeof(Head) == ServerMessage::kBytes);

constexpr char kMagic[] = {'S', 'L', 'P', 'S'};
constexpr std::uint8_t kVersion = 1;
constexpr std::uint64_t kMaxPayload = std::uint64_t{1} << 40;

}  // namespace

ServerMessage::Frame ServerMessage::pack() const {
  Head head{
      {},    kVersion,     static_cast<std::uint8_t>(kind), static_cast<std::uint16_t>(from), part, 0, round, after,
      value, payload_bytes};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  Frame frame;
  std::memcpy(frame.data(), &head, sizeof head);
  return frame;
}

ServerMessage ServerMessage::unpack(const Frame& frame, int from) {
  Head head;
  std::memcpy(&head, frame.data(), sizeof head);
  const auto require = [from](bool holds, const char* what) {
    if (!holds) fail<FabricError>("a message from rank {} is refused: {}; do all run the same program?", from, what);
  };
  require(std::memcmp(head.magic, kMagic, sizeof kMagic) == 0, "it does not begin with SLPS");
  require(head.version == kVersion, "its version is another");
  require(head.kind >= 1 && head.kind <= static_cast<std::uint8_t>(Kind::kReply), "there is no such kind");
  require(head.from == from, "it names another sender");
  require(head.zero == 0, "its unused bytes are not zero");
  require(head.round >= 0 && head.after >= 0, "a round is negative");
  require(std::isfinite(head.value), "its rate is not finite");
  require(head.payload_bytes <= kMaxPayload, "its payload is larger than any");
  return {static_cast<Kind>(head.kind), from, head.part, head.round, head.after, head.value, head.payload_bytes};
}

std::string ServerSetup::to_text() const {
  OptimizerOptions described = optimizer;
  OptionSet options("optimizer");
  described.describe(options);
  const auto& stretches = groups.stretches();
  std::string text = fmt::format("{} {} {} {} {} {}\n", static_cast<int>(apply), static_cast<int>(scores),
                                 options.all().size(), counts.size(), optimizer.groups.size(), stretches.size());
  for (const Option& option : options.all()) text += fmt::format("{}={}\n", option.name, option.get());
  for (const std::size_t count : counts) text += fmt::format("{}\n", count);
  for (std::size_t i = 0; i < optimizer.groups.size(); ++i) {
    const int group = static_cast<int>(i);
    text += fmt::format("{} {}\n", optimizer.lr_factor(group), optimizer.decay(group));
  }
  for (std::size_t at = 0; const GroupMap::Stretch& stretch : stretches) {
    text += fmt::format("{} {}\n", stretch.end - std::exchange(at, stretch.end), stretch.group);
  }
  return text;
}

ServerSetup ServerSetup::from_text(const std::string& text) {
  std::istringstream in(text);
  int apply = -1, scores = -1;
  std::size_t options = 0, parts = 0, groups = 0, stretches = 0, weights = 0;
  ServerSetup setup;
  OptionSet described("optimizer");
  setup.optimizer.describe(described);
  in >> apply >> scores >> options >> parts >> groups >> stretches;
  for (std::string pair; options > 0 && in >> pair; --options) described.set_pair(pair);
  for (std::size_t count; parts > 0 && in >> count; --parts) {
    setup.counts.push_back(count);
    weights += count;
  }
  for (double factor, decay; groups > 0 && in >> factor >> decay; --groups) {
    setup.optimizer.groups.push_back({.lr_factor = factor, .weight_decay = decay});
  }
  const auto known = static_cast<int>(setup.optimizer.groups.size());
  int group = 0;
  for (std::size_t count; stretches > 0 && in >> count >> group && group < known; --stretches) {
    setup.groups.append(count, group);
  }
  const bool whole = setup.groups.size() == (known > 0 ? weights : 0);
  if (in.fail() || options > 0 || parts > 0 || groups > 0 || stretches > 0 || group < GroupMap::kNone || !whole ||
      apply < 0 || apply > 3 || scores < 0 || scores > 1) {
    fail<FabricError>("a setup of {} bytes is refused: it cannot be read; do all run the same program?", text.size());
  }
  setup.apply = static_cast<Apply>(apply);
  setup.scores = scores == 1;
  return setup;
}

}  // namespace slipstream
