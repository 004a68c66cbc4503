// SPDX-License-Identifier: Apache-2.0
#include "topology/server_loop.h"

#include <slipstream/base/error.h>

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

// One server's state and its connections.
class Server {
 public:
  explicit Server(Fabric& net) : net_(net), shard_(net.rank() - net.size(), net.size()) {
    for (int worker = 0; worker < net.size(); ++worker) {
      for (const Tag lane : {kUrgent, kBackground}) inboxes_.emplace_back(net, worker, lane);
    }
  }

  void run() {
    std::vector<Operation*> waiting;
    for (;;) {
      waiting.clear();
      for (const Inbox& inbox : inboxes_) inbox.add_waiting(waiting);
      if (waiting.empty()) break;
      net_.wait_any(waiting);
      for (Inbox& inbox : inboxes_) {
        inbox.deliver([&](const ServerMessage& message, ServerPayload payload) {
          for (auto& reply : shard_.handle(inbox.lane(), message, std::move(payload))) send(std::move(reply));
        });
      }
      outbox_.remove_if([](Outgoing& out) { return out.head.done() && out.body.done(); });
    }
    for (Outgoing& out : outbox_) {
      out.head.wait();
      out.body.wait();
    }
  }

 private:
  void send(ShardServer::Reply reply) {
    reply.message.from = net_.rank();
    Outgoing& out = outbox_.emplace_back(Outgoing{reply.message.pack(), std::move(reply.payload), {}, {}});
    out.head = net_.send(reply.to, reply.lane, out.frame);
    if (out.payload) out.body = net_.send(reply.to, reply.lane, out.payload->bytes());
  }

  Fabric& net_;
  ShardServer shard_;
  std::list<Outgoing> outbox_;
  std::deque<Inbox> inboxes_;
};

}  // namespace

void serve(Fabric& net) {
  Server server(net);
  try {
    server.run();
  } catch (const AnnouncedError&) {
    throw;
  } catch (const std::exception& e) {
    net.announce_failure(e.what());  // before the server goes: what it has in flight would wait for its peers
    throw;
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
