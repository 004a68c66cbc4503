// SPDX-License-Identifier: Apache-2.0
#include "server/client.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/hash.h"
#include "server/layout.h"

namespace slipstream {
namespace {

using Kind = ServerMessage::Kind;

std::size_t index(Tag lane) { return static_cast<std::size_t>(lane_of(lane)); }

}  // namespace

std::vector<ServerPart> ServerClient::plan(const std::vector<std::size_t>& cuts, int servers, std::size_t max_bytes) {
  const std::size_t total = cuts.empty() ? 0 : cuts.back();
  const std::size_t most = std::max<std::size_t>(1, max_bytes / sizeof(float));
  const auto border = [&](int server) {
    return total * static_cast<std::size_t>(server) / static_cast<std::size_t>(servers);
  };
  std::vector<std::uint32_t> next(static_cast<std::size_t>(servers));
  std::vector<ServerPart> parts;
  for (int server = 0; server < servers; ++server) {
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      const std::size_t begin = std::max(cuts[c], border(server)), end = std::min(cuts[c + 1], border(server + 1));
      if (begin >= end) continue;
      const std::size_t pieces = (end - begin + most - 1) / most;
      for (std::size_t i = 0; i < pieces; ++i) {
        const std::size_t from = begin + (end - begin) * i / pieces, to = begin + (end - begin) * (i + 1) / pieces;
        parts.push_back({from, to - from, server, next[static_cast<std::size_t>(server)]++});
      }
    }
  }
  return parts;
}

void ServerClient::open(Fabric& net, std::vector<ServerPart> parts, ServerSetup::Apply apply, bool scores,
                        const OptimizerOptions& optimizer, const GroupMap& groups, std::span<const float> weights) {
  rule_ = optimizer;
  rule_.clip_norm = 0.0;  // no server sees a whole gradient: every worker clips its own before it pushes
  net_ = &net;
  at_ = net.servers();
  check(at_.count > 0, "a strategy with servers was started on a fabric that has none");
  parts_ = std::move(parts);
  pushed_.assign(parts_.size(), 0);
  scores_.assign(parts_.size(), 0.0);
  updates_.assign(parts_.size(), 0);
  std::vector<std::string> texts;
  for (int server = 0; server < at_.count; ++server) {
    ServerSetup setup{apply, scores, {}, rule_, {}};
    std::size_t end = 0, count = 0;
    for (const ServerPart& part : parts_) {
      if (part.server != server) continue;
      setup.counts.push_back(part.count);
      count += part.count;
      end = part.offset + part.count;
    }
    setup.groups = groups.part(end - count, count);  // a server's parts are neighbours
    texts.push_back(setup.to_text());
  }
  for (int server = 0; server < at_.count; ++server) {
    send(server, kUrgent, {.kind = Kind::kSetup}, std::as_bytes(std::span(texts[static_cast<std::size_t>(server)])));
  }
  for (std::size_t p = 0; p < parts_.size() && net.rank() == 0; ++p) {
    send(parts_[p].server, kUrgent, to_part(Kind::kWeights, p),
         std::as_bytes(weights.subspan(parts_[p].offset, parts_[p].count)));
  }
  for (int server = 0; server < at_.count; ++server) {
    ServerMessage::Frame frame;
    reply(server, kUrgent, frame, {}).wait();
    checked(frame, server, 0, 0, 0);
  }
  settle(kUrgent, 0);
}

std::pair<std::size_t, std::size_t> ServerClient::parts_in(std::size_t offset, std::size_t count) const {
  const auto starts_before = [](const ServerPart& part, std::size_t at) { return part.offset < at; };
  const auto first = std::lower_bound(parts_.begin(), parts_.end(), offset, starts_before);
  const auto last = std::lower_bound(first, parts_.end(), offset + count, starts_before);
  return {static_cast<std::size_t>(first - parts_.begin()), static_cast<std::size_t>(last - parts_.begin())};
}

void ServerClient::push(std::size_t part, std::span<const float> gradient, double lr, Tag lane) {
  ServerMessage message = to_part(Kind::kPush, part);
  message.value = lr;
  send(parts_[part].server, lane, message, std::as_bytes(gradient));
  ++pushed_[part];
}

void ServerClient::pull(std::size_t part, std::span<float> into, std::int64_t behind, Tag lane) {
  ServerMessage message = to_part(Kind::kPull, part);
  message.after = after(part, behind);
  send(parts_[part].server, lane, message, {});
  expect(part, into, message.after, lane);
}

void ServerClient::push_pull(std::size_t part, std::span<const float> gradient, double lr, std::span<float> into,
                             std::int64_t behind, Tag lane) {
  ServerMessage message = to_part(Kind::kPushPull, part);
  message.value = lr;
  ++pushed_[part];
  message.after = after(part, behind);
  send(parts_[part].server, lane, message, std::as_bytes(gradient));
  expect(part, into, message.after, lane);
}

void ServerClient::wait(Tag lane, const std::function<void(std::size_t part)>& arrived) {
  std::int64_t round = 0;
  for (auto& pulls = pulls_[index(lane)]; !pulls.empty(); pulls.pop_front()) {
    Pull& pull = pulls.front();
    const ServerPart& part = parts_[pull.part];
    pull.reply.wait();
    const ServerMessage reply = checked(pull.frame, part.server, part.index, pull.after, part.count * sizeof(float));
    scores_[pull.part] = reply.value;
    updates_[pull.part] = reply.round;
    round = std::max(round, pull.own);
    if (arrived) arrived(pull.part);
  }
  settle(lane, round - 1);
}

void ServerClient::ask_round() {
  const std::int64_t round = pushed_.empty() ? 0 : *std::max_element(pushed_.begin(), pushed_.end());
  auto& signs = signs_.emplace_back(static_cast<std::size_t>(at_.count));
  for (int server = 0; server < at_.count; ++server) {
    Sign& sign = signs[static_cast<std::size_t>(server)];
    sign.server = server;
    sign.after = round;
    send(server, kUrgent, {.kind = Kind::kAwait, .after = round}, {});
    sign.reply = reply(server, kUrgent, sign.frame, {});
  }
}

void ServerClient::wait_rounds(std::size_t open) {
  for (; signs_.size() > open; signs_.pop_front()) {
    for (Sign& sign : signs_.front()) {
      sign.reply.wait();
      checked(sign.frame, sign.server, 0, sign.after, 0);
    }
    settle(kUrgent, signs_.front().front().after - 1);
  }
}

void ServerClient::visit(StateVisitor& v) {
  wait_rounds(0);
  std::int64_t rounds = pushed_.empty() ? 0 : pushed_.front();
  for (int server = net_->rank(); server < at_.count; server += net_->size()) {
    visit_server(v, server, rounds);
  }
  v.integer("rounds", rounds);
  std::fill(pushed_.begin(), pushed_.end(), rounds);
  float done = 1;
  net_->sum(std::span(&done, 1)).wait();  // nobody goes on before all servers have what was written
}

void ServerClient::visit_server(StateVisitor& v, int server, std::int64_t rounds) {
  std::size_t first = 0, range = 0, parts = 0;
  for (const ServerPart& part : parts_) {  // a server's parts are neighbours
    if (part.server != server) continue;
    first = parts++ == 0 ? part.offset : first;
    range += part.count;
  }
  if (parts == 0) return;
  const auto bytes = ask(server, {.kind = Kind::kStateSize, .after = rounds}, {}, {}).round;
  std::vector<float> state(static_cast<std::size_t>(bytes) / sizeof(float));
  const auto memory = std::as_writable_bytes(std::span(state));
  ask(server, {.kind = Kind::kReadState, .after = rounds}, {}, memory);
  const std::uint64_t read = hash_bytes(memory);

  const ServerLayout layout(rule_);
  const auto name = [first](const std::string& what) { return fmt::format("server@{}/{}", first, what); };
  std::span<float> left(state);
  for (const std::string& field : layout.fields) {
    v.floats(name(field), left.first(range));
    left = left.subspan(range);
  }
  v.floats(name(kServerCounters), left);
  // The optimizer's integers are equal in all parts: the visitor gets one, and a change to it goes to all parts.
  const std::size_t stride = left.size() / parts;
  for (std::size_t i = 0; i < layout.integers.size(); ++i) {
    const auto in_part = [&](std::size_t part) {
      return std::as_writable_bytes(left.subspan(part * stride + i * ServerLayout::kFloatsOfInteger)).data();
    };
    std::int64_t value = 0;
    std::memcpy(&value, in_part(0), sizeof value);
    const std::int64_t before = value;
    v.integer(name(layout.integers[i]), value);
    for (std::size_t part = 0; part < parts && value != before; ++part) {
      std::memcpy(in_part(part), &value, sizeof value);
    }
  }
  if (hash_bytes(memory) != read) ask(server, {.kind = Kind::kWriteState, .after = rounds}, memory, {});
}

void ServerClient::send(int server, Tag lane, ServerMessage message, std::span<const std::byte> payload) {
  message.from = net_->rank();
  message.payload_bytes = payload.size();
  Outgoing& out = outbox_[index(lane)].emplace_back();
  out.round = message.round;
  out.frame = message.pack();
  out.sent = net_->send(at_.first + server, kServerTag | lane, out.frame, payload);
}

InFlight ServerClient::reply(int server, Tag lane, ServerMessage::Frame& frame, std::span<std::byte> into) {
  return net_->recv(at_.first + server, kServerReplyTag | lane, frame, into);
}

void ServerClient::expect(std::size_t part, std::span<float> into, std::int64_t after, Tag lane) {
  Pull& pull = pulls_[index(lane)].emplace_back();
  pull.part = part;
  pull.after = after;
  pull.own = pushed_[part];
  pull.reply = reply(parts_[part].server, lane, pull.frame, std::as_writable_bytes(into));
}

ServerMessage ServerClient::ask(int server, const ServerMessage& message, std::span<const std::byte> payload,
                                std::span<std::byte> into) {
  ServerMessage::Frame frame;
  send(server, kUrgent, message, payload);
  reply(server, kUrgent, frame, into).wait();
  settle(kUrgent, std::numeric_limits<std::int64_t>::max());
  return checked(frame, server, 0, message.after, into.size());
}

ServerMessage ServerClient::checked(const ServerMessage::Frame& frame, int server, std::uint32_t part,
                                    std::int64_t after, std::uint64_t payload_bytes) const {
  const ServerMessage reply = ServerMessage::unpack(frame, server);
  if (reply.kind != Kind::kReply || reply.part != part || reply.after != after ||
      reply.payload_bytes != payload_bytes) {
    fail<FabricError>(
        "server {} (rank {}) answers with {} bytes of part {} after round {}; {} bytes of part {} after round {} were "
        "asked for",
        server, at_.first + server, reply.payload_bytes, reply.part, reply.after, payload_bytes, part, after);
  }
  return reply;
}

// Waits until the messages of these rounds have left.
void ServerClient::settle(Tag lane, std::int64_t round) {
  for (auto& outbox = outbox_[index(lane)]; !outbox.empty() && outbox.front().round <= round; outbox.pop_front()) {
    outbox.front().sent.wait();
  }
}

ServerMessage ServerClient::to_part(Kind kind, std::size_t part) const {
  return {.kind = kind, .part = parts_[part].index, .round = pushed_[part]};
}

std::int64_t ServerClient::after(std::size_t part, std::int64_t behind) const {
  return std::max<std::int64_t>(0, behind == kAnyBehind ? 0 : pushed_[part] - behind);
}

}  // namespace slipstream
