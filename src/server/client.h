// SPDX-License-Identifier: Apache-2.0
//
// ServerClient: a worker's side of the parameter server. The flat model lies on S servers in contiguous ranges of equal
// size; each range is cut into parts, the unit of pushing and pulling. Pushes and pulls return at once; what they use
// must stay untouched until the matching wait.
//
//   open       once, on all workers: tells the servers what they hold; worker 0's weights become everybody's
//   push       hands the servers a gradient for one part; every worker pushes every part once in a round
//   pull       asks for the weights of a part, to be sent once they hold everybody's pushes up to the round of this
//              worker's last push (or up to `behind` rounds less)
//
// ServerSetup::Apply says how pushes become updates. visit() is collective: it reads and writes the servers' state.
#pragma once

#include <slipstream/base/state.h>
#include <slipstream/fabric/fabric.h>

#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "server/message.h"

namespace slipstream {

// A part of the flat model, as the worker sees it.
struct ServerPart {
  std::size_t offset = 0, count = 0;
  int server = 0;
  std::uint32_t index = 0;  // among its server's parts

  std::span<float> of(std::span<float> flat) const { return flat.subspan(offset, count); }
};

class ServerClient {
 public:
  static constexpr std::int64_t kAnyBehind = std::numeric_limits<std::int64_t>::max();
  static constexpr double kHeadBytes = ServerMessage::kBytes;

  // The parts, in the order of the flat model: each [cuts[i], cuts[i+1]) is cut at the borders between servers and into
  // equal pieces of at most `max_bytes`. `cuts` ascends from 0 to the model's size.
  static std::vector<ServerPart> plan(const std::vector<std::size_t>& cuts, int servers, std::size_t max_bytes);

  void open(Fabric& net, std::vector<ServerPart> parts, ServerSetup::Apply apply, bool scores,
            const OptimizerOptions& optimizer, const GroupMap& groups, std::span<const float> weights);

  const std::vector<ServerPart>& parts() const { return parts_; }
  // The parts [first, last) that make up this range, which begins and ends at cuts.
  std::pair<std::size_t, std::size_t> parts_in(std::size_t offset, std::size_t count) const;
  // From the last reply about a part: its importance, and the updates made so far.
  double score(std::size_t part) const { return scores_[part]; }
  std::int64_t updates(std::size_t part) const { return updates_[part]; }

  void push(std::size_t part, std::span<const float> gradient, double lr, Tag lane = kUrgent);
  void pull(std::size_t part, std::span<float> into, std::int64_t behind = 0, Tag lane = kUrgent);
  void push_pull(std::size_t part, std::span<const float> gradient, double lr, std::span<float> into,
                 std::int64_t behind = 0, Tag lane = kUrgent);
  // Waits for all pulls of the lane, and until the pushes before them have left. `arrived` is called for every part
  // whose weights have come, while others are still on their way.
  void wait(Tag lane = kUrgent, const std::function<void(std::size_t part)>& arrived = {});

  // Asks all servers to answer once the last round's pushes of all workers are in their weights. wait_rounds waits
  // until at most `open` of the rounds asked about are unanswered, and until the pushes of the answered ones have left.
  void ask_round();
  void wait_rounds(std::size_t open);

  // Names what each server holds "server@FIRST/FIELD", FIRST being the index of its first float in the model: weights,
  // the optimizer's state, counters. Nothing may be in flight but ask_round().
  void visit(StateVisitor& v);

 private:
  struct Outgoing {
    std::int64_t round = 0;
    ServerMessage::Frame frame{};
    InFlight sent;  // last: it uses the frame
  };
  struct Pull {
    std::size_t part = 0;
    std::int64_t after = 0;
    std::int64_t own = 0;  // rounds this worker had pushed when it asked; the reply says that they have arrived
    ServerMessage::Frame frame{};
    InFlight reply;
  };
  struct Sign {
    int server = 0;
    std::int64_t after = 0;
    ServerMessage::Frame frame{};
    InFlight reply;
  };

  void visit_server(StateVisitor& v, int server, std::int64_t rounds);
  void send(int server, Tag lane, ServerMessage message, std::span<const std::byte> payload);
  void expect(std::size_t part, std::span<float> into, std::int64_t after, Tag lane);
  // Sends a request and waits for its answer.
  ServerMessage ask(int server, const ServerMessage& message, std::span<const std::byte> payload,
                    std::span<std::byte> into);
  InFlight reply(int server, Tag lane, ServerMessage::Frame& frame, std::span<std::byte> into);
  ServerMessage checked(const ServerMessage::Frame& frame, int server, std::uint32_t part, std::int64_t after,
                        std::uint64_t payload_bytes) const;
  void settle(Tag lane, std::int64_t round);
  ServerMessage to_part(ServerMessage::Kind kind, std::size_t part) const;
  std::int64_t after(std::size_t part, std::int64_t behind) const;

  Fabric* net_ = nullptr;
  Fabric::Servers at_;
  OptimizerOptions rule_;  // the servers' optimizer
  std::vector<ServerPart> parts_;
  std::vector<std::int64_t> pushed_;  // rounds, by part
  std::vector<std::int64_t> updates_;
  std::vector<double> scores_;                  // by part
  std::array<std::deque<Outgoing>, 2> outbox_;  // by lane
  std::array<std::deque<Pull>, 2> pulls_;       // by lane
  std::deque<std::vector<Sign>> signs_;         // by asked round
};

}  // namespace slipstream
