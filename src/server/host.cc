// SPDX-License-Identifier: Apache-2.0
#include "server/host.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <array>
#include <vector>

#include "wire/roster.h"

namespace slipstream {
namespace {

constexpr std::array kLanes = {kUrgent, kBackground};

}  // namespace

ServerHost::ServerHost(Fabric& net)
    : net_(net), server_(net.rank() - net.servers().first), shard_(server_, net.size()) {
  for (const Tag lane : kLanes) net.listen(kServerTag | lane, this);
}

ServerHost::~ServerHost() {
  for (const Tag lane : kLanes) net_.listen(kServerTag | lane, nullptr);
}

void ServerHost::begins(int from, Tag, const LetterHead& head, std::uint64_t body_bytes) {
  shard_.admit(ServerMessage::unpack(head, from), body_bytes);
}

void ServerHost::arrived(int from, Tag tag, const LetterHead& head, std::span<const std::byte> body, Answers& answers) {
  const ServerMessage message = ServerMessage::unpack(head, from);
  const Tag lane = tag & kBackground;
  for (auto& reply : shard_.handle(lane, message, body)) {
    reply.message.from = server_;
    answers.send(reply.to, kServerReplyTag | reply.lane, reply.message.pack(), std::move(reply.payload));
  }
  if (message.kind != ServerMessage::Kind::kBye) return;
  left_.emplace(from, tag);  // a fast worker may greet the next host before this one is gone
  const std::lock_guard lock(mutex_);
  ++goodbyes_;
  why_ = std::max(why_, static_cast<Goodbye>(std::clamp(message.value, 0.0, 3.0)));
  ended_.notify_all();
}

void ServerHost::failed(const std::string& text) {
  const std::lock_guard lock(mutex_);
  failure_ = text;
  ended_.notify_all();
}

Goodbye ServerHost::wait() {
  const int expected = static_cast<int>(kLanes.size()) * net_.size();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return goodbyes_ == expected || failure_; });
  if (goodbyes_ < expected) throw_failure_text(*failure_, true);
  return why_;
}

void leave_servers(Fabric& net, Goodbye why) {
  const ServerMessage bye{
      .kind = ServerMessage::Kind::kBye, .from = net.rank(), .value = static_cast<double>(static_cast<int>(why))};
  const auto frame = bye.pack();
  std::vector<InFlight> sends;
  const auto at = net.servers();
  for (int server = 0; server < at.count; ++server) {
    for (const Tag lane : kLanes) sends.push_back(net.send(at.first + server, kServerTag | lane, frame));
  }
  for (InFlight& send : sends) send.wait();
}

}  // namespace slipstream
