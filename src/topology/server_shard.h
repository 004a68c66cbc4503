// SPDX-License-Identifier: Apache-2.0
//
// ShardServer: one server's share of the model and all it does with it, as a state machine: a message goes in, replies
// come out. It knows no fabric, time or threads; server_loop.h connects it to the world.
//
// Its share is cut into parts, the unit of pushing, pulling and updating. Each part has its weights, its optimizer, and
// counts updates. A worker's pushes to a part are numbered without gaps; anything else is refused with a FabricError
// that names worker, part and round, and changes nothing. With Apply::kMean contributions are added in rank order, so
// the result does not depend on who came first; early ones are kept until it is their turn.
//
// A pull is answered once the weights hold all of the asking worker's own pushes and `after` pushes of everybody,
// with the weights of that very moment. Replies to a worker leave in the order of its requests, lane by lane.
//
// Memory: weights, optimizer state, one sum for each part in progress, and what is in flight.
#pragma once

#include <slipstream/fabric/fabric.h>
#include <slipstream/optim/optimizer.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "topology/server_message.h"

namespace slipstream {

class ShardServer {
 public:
  struct Reply {
    int to = 0;
    Tag lane = kUrgent;
    ServerMessage message;
    std::shared_ptr<const ServerPayload> payload;  // null: none
  };

  ShardServer(int server, int workers);

  // Takes one message; returns the replies that are due now, in the order in which they must be sent.
  std::vector<Reply> handle(Tag lane, const ServerMessage& message, ServerPayload payload);

  std::size_t parts() const { return parts_.size(); }
  std::int64_t updates(std::size_t part) const { return parts_[part].updates; }
  std::span<const float> weights(std::size_t part) const { return parts_[part].weights; }

 private:
  struct Request {
    ServerMessage asked;
    Tag lane = kUrgent;
    std::int64_t own = 0;  // pushes of the asking worker that must be in
    bool ready = false;
    ServerMessage answer;
    std::shared_ptr<const ServerPayload> payload;
  };
  struct Round {                       // one round of a part while it is gathered
    std::vector<ServerPayload> early;  // by place in the sum: came before its turn
    int added = 0;                     // places 0 … added-1 are in the sum
    ServerPayload sum;                 // the first worker's, to which the others' are added
    double lr = 0.0;
    int first = 0;  // who told the rate
  };
  struct Part {
    std::vector<float> weights;
    std::unique_ptr<Optimizer> optimizer;
    std::int64_t updates = 0;
    std::vector<std::int64_t> received, applied;                      // pushes, by worker
    std::deque<Round> rounds;                                         // the first is round `updates`
    std::vector<std::deque<std::pair<ServerPayload, double>>> turns;  // Apply::kTurns: by worker, with their rates
    std::vector<std::shared_ptr<Request>> waiting;
    std::shared_ptr<const ServerPayload> snapshot;  // of the weights as they are, once somebody asked
    double score = 0.0;
  };

  void begin(const ServerMessage& message, const ServerPayload& payload);
  void set_weights(const ServerMessage& message, const ServerPayload& payload);
  void check_push(const Part& part, const ServerMessage& message, const ServerPayload& payload) const;
  void push(Part& part, const ServerMessage& message, ServerPayload payload);
  void add_to_round(Part& part, const ServerMessage& message, ServerPayload payload);
  void apply(Part& part, std::span<const float> gradient, double lr);
  void request(const ServerMessage& message, Tag lane);
  void answer_waiting(Part& part);
  void answer_idle();
  std::shared_ptr<const ServerPayload> read_state();
  void write_state(const ServerPayload& payload);
  template <typename Visitor>
  void visit(Visitor& v);

  bool ready() const { return setups_ == workers_ && weighed_ == parts_.size(); }
  std::int64_t slowest(const Part& part) const;
  std::int64_t slowest() const;
  Part& part_of(const ServerMessage& message);
  [[noreturn]] void refuse(const ServerMessage& message, const std::string& why) const;
  void require(bool holds, const ServerMessage& message, const std::string& why) const {
    if (!holds) refuse(message, why);
  }

  const int server_;
  const int workers_;
  ServerSetup setup_;
  std::string setup_text_;
  int setups_ = 0;
  std::vector<bool> set_up_;  // by worker
  std::size_t weighed_ = 0;   // parts that have their first weights
  std::vector<Part> parts_;
  std::vector<std::deque<std::shared_ptr<Request>>> queues_;  // by 2 × worker + lane: replies leave in this order
  std::vector<std::shared_ptr<Request>> idle_requests_;       // those that concern all parts
};

}  // namespace slipstream
