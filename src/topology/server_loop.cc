// SPDX-License-Identifier: Apache-2.0
#include "topology/server_loop.h"

#include <algorithm>
#include <deque>
#include <list>
#include <vector>

#include "topology/server_shard.h"

namespace slipstream {
namespace {

constexpr std::size_t kAhead = 4;  // messages of one lane being received at a time

// What one worker sends on one lane: heads and payloads, in turn.
class Inbox {
 public:
  Inbox(Fabric& net, int from, Tag lane) : net_(net), from_(from), lane_(lane) { expect_head(); }

  Tag lane() const { return lane_; }
  bool closed() const { return !head_.active() && letters_.empty(); }

  void add_waiting(std::vector<Operation*>& waiting) const {
    if (head_.active()) waiting.push_back(head_.operation());
    if (!letters_.empty() && letters_.front().body.active()) waiting.push_back(letters_.front().body.operation());
  }

  // Calls take(message, payload) for all that is there in full.
  template <typename Take>
  void deliver(const Take& take) {
    for (;;) {
      if (head_.active() && head_.done()) {
        head_.wait();
        letters_.push_back({ServerMessage::unpack(frame_, from_), {}, {}});
        Letter& letter = letters_.back();
        if (letter.message.payload_bytes > 0) {
          letter.payload = ServerPayload(letter.message.payload_bytes);
          letter.body = net_.recv(from_, lane_, letter.payload.bytes());
        }
        left_ = left_ || letter.message.kind == ServerMessage::Kind::kBye;
        expect_head();
      } else if (!letters_.empty() && letters_.front().body.done()) {
        Letter letter = std::move(letters_.front());
        letters_.pop_front();
        letter.body.wait();
        expect_head();
        take(letter.message, std::move(letter.payload));
      } else {
        return;
      }
    }
  }

 private:
  struct Letter {
    ServerMessage message;
    ServerPayload payload;
    InFlight body;  // last: it uses the payload
  };

  void expect_head() {
    if (!left_ && !head_.active() && letters_.size() < kAhead) head_ = net_.recv(from_, lane_, frame_);
  }

  Fabric& net_;
  const int from_;
  const Tag lane_;
  bool left_ = false;
  std::deque<Letter> letters_;
  ServerMessage::Frame frame_{};
  InFlight head_;  // last: it uses the frame
};

struct Outgoing {
  ServerMessage::Frame frame;
  std::shared_ptr<const ServerPayload> payload;
  InFlight head, body;  // last: they use the memory above
};

}  // namespace

void serve(Fabric& net) {
  ShardServer shard(net.rank() - net.size(), net.size());
  std::list<Outgoing> outbox;
  std::deque<Inbox> inboxes;
  for (int worker = 0; worker < net.size(); ++worker) {
    for (const Tag lane : {kUrgent, kBackground}) inboxes.emplace_back(net, worker, lane);
  }
  std::vector<Operation*> waiting;
  for (;;) {
    waiting.clear();
    for (const Inbox& inbox : inboxes) inbox.add_waiting(waiting);
    if (waiting.empty()) break;
    net.wait_any(waiting);
    for (Inbox& inbox : inboxes) {
      inbox.deliver([&](const ServerMessage& message, ServerPayload payload) {
        for (ShardServer::Reply& reply : shard.handle(inbox.lane(), message, std::move(payload))) {
          reply.message.from = net.rank();
          Outgoing& out = outbox.emplace_back(Outgoing{reply.message.pack(), std::move(reply.payload), {}, {}});
          out.head = net.send(reply.to, reply.lane, out.frame);
          if (out.payload) out.body = net.send(reply.to, reply.lane, out.payload->bytes());
        }
      });
    }
    outbox.remove_if([](Outgoing& out) {
      if (!out.head.done() || !out.body.done()) return false;
      out.head.wait();
      out.body.wait();
      return true;
    });
  }
  for (Outgoing& out : outbox) {
    out.head.wait();
    out.body.wait();
  }
}

void leave_servers(Fabric& net) {
  const auto frame = ServerMessage{.kind = ServerMessage::Kind::kBye, .from = net.rank()}.pack();
  std::vector<InFlight> sends;
  for (int server = 0; server < net.servers(); ++server) {
    for (const Tag lane : {kUrgent, kBackground}) sends.push_back(net.send(net.size() + server, lane, frame));
  }
  for (InFlight& send : sends) send.wait();
  net.close_servers();
}

}  // namespace slipstream
