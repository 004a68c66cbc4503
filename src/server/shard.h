// SPDX-License-Identifier: Apache-2.0
//
// ShardServer: one server's share of the model and everything done with it, as a state machine: a message goes in,
// replies come out. It knows no fabric, time or threads; host.h connects it to the world.
//
// Its share is cut into parts, the unit of pushing, pulling and updating. Each part has its weights, its optimizer, and
// counts updates. A worker's pushes to a part are numbered without gaps; anything else is refused with a FabricError
// that names worker, part and round, and changes nothing. With Apply::kMean contributions are added in rank order, so
// the result does not depend on who came first; early ones are kept until it is their turn.
//
// A pull is answered once the weights hold all of the asking worker's own pushes and `after` pushes of everybody,
// with the weights of that very moment. Replies to a worker leave in the order of its requests, lane by lane.
//
// Memory: weights, optimizer state, one sum for each part in progress, and pushes that came before their turn. A reply
// shares the weights themselves; only an update that comes before the reply has left makes a copy.
#pragma once

#include <slipstream/fabric/fabric.h>
#include <slipstream/optim/optimizer.h>

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/message.h"
#include "wire/listener.h"

namespace slipstream {

struct ServerLayout;

class ShardServer {
 public:
  struct Reply {
    int to = 0;
    Tag lane = kUrgent;
    ServerMessage message;
    std::shared_ptr<const Floats> payload;  // null: none
  };

  ShardServer(int server, int workers);

  // Throws FabricError if this message, with so many bytes after its head, may not come now; allocates nothing.
  void admit(const ServerMessage& message, std::uint64_t payload_bytes) const;
  // Takes one message; returns the replies that are due now, in the order in which they must be sent.
  std::vector<Reply> handle(Tag lane, const ServerMessage& message, std::span<const std::byte> payload);

  std::size_t parts() const { return parts_.size(); }
  std::int64_t updates(std::size_t part) const { return parts_[part].updates; }
  std::span<const float> weights(std::size_t part) const { return *parts_[part].weights; }

 private:
  struct Request {
    ServerMessage asked;
    Tag lane = kUrgent;
    std::int64_t own = 0;  // pushes of the asking worker that must be applied before
    bool ready = false;
    ServerMessage answer;
    std::shared_ptr<const Floats> payload;
  };
  struct Round {                // one round of a part while it is gathered
    std::vector<Floats> early;  // by worker: pushes that came before their turn
    std::vector<bool> came;     // by worker: is its push in `early`?
    int added = 0;              // pushes in the sum; in rank order: those of workers 0 … added-1
    Floats sum;
    double lr = 0.0;
    int first = 0;  // the worker that `lr` came from
  };
  struct Part {
    std::shared_ptr<Floats> weights, spare;  // `spare`: an older copy, for reuse
    std::unique_ptr<Optimizer> optimizer;
    std::int64_t updates = 0;
    std::vector<std::int64_t> received, applied;               // pushes, by worker
    std::int64_t slowest = 0;                                  // the least of `applied`
    std::deque<Round> rounds;                                  // the first is round `updates`
    std::vector<std::deque<std::pair<Floats, double>>> turns;  // Apply::kTurns: by worker, with their rates
    std::vector<std::shared_ptr<Request>> waiting;
    double score = 0.0;
  };

  void begin(const ServerMessage& message, std::span<const std::byte> payload);
  void set_weights(const ServerMessage& message, std::span<const float> payload);
  void check_push(const Part& part, const ServerMessage& message) const;
  void push(Part& part, const ServerMessage& message, std::span<const float> payload);
  void add_to_round(Part& part, const ServerMessage& message, std::span<const float> payload);
  void apply(Part& part, std::span<const float> gradient, double lr);
  void count_applied(Part& part);
  void request(const ServerMessage& message, Tag lane);
  void answer_waiting(Part& part);
  void answer_idle();
  std::shared_ptr<const Floats> read_state();
  void write_state(std::span<const std::byte> payload);
  std::size_t state_floats(const ServerLayout& layout, std::size_t range) const;
  void visit(StateVisitor& v);
  Floats copy_of(std::span<const float> values);

  bool ready() const { return setups_ == workers_ && weighed_ == parts_.size(); }
  void recount();  // slowest_ and behind_, from all parts
  const Part& part_of(const ServerMessage& message) const;
  Part& part_of(const ServerMessage& message) {
    return const_cast<Part&>(static_cast<const ShardServer*>(this)->part_of(message));
  }
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
  std::int64_t slowest_ = 0;                                  // the least of all parts' `slowest`
  std::size_t behind_ = 0;                                    // how many parts are that slow
  std::vector<Floats> buffers_;                               // for reuse
  std::vector<std::deque<std::shared_ptr<Request>>> queues_;  // by 2 × worker + lane: replies leave in this order
  std::vector<std::shared_ptr<Request>> idle_requests_;       // those that concern all parts
};

}  // namespace slipstream
