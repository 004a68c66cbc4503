// SPDX-License-Identifier: Apache-2.0
//
// What a worker and a server say to each other: one message, a head of 48 bytes and, where the kind has one, a payload.
// Drawn in docs/wire-format.md. The receiver checks every field before it allocates memory for the payload.
//
// ServerSetup: what a server must know before it can serve. Every worker sends the same when a job begins.
#pragma once

#include <slipstream/base/tag.h>
#include <slipstream/optim/optimizer.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace slipstream {

struct ServerMessage {
  enum class Kind : std::uint8_t {
    kSetup = 1,   // payload: ServerSetup as text
    kWeights,     // payload: the first weights of a part; from worker 0
    kPush,        // payload: a gradient
    kPull,        // answered with weights
    kPushPull,    // both
    kAwait,       // answered without payload, once all parts hold `after` pushes of every worker
    kStateSize,   // answered without payload; `round` is the size of the server's state in bytes
    kReadState,   // answered with the server's whole state
    kWriteState,  // payload: a state that was read before; answered without payload
    kBye,         // the last message of a lane
    kReply,
  };
  static constexpr std::size_t kBytes = 48;
  using Frame = std::array<std::byte, kBytes>;

  Kind kind = Kind::kReply;
  int from = 0;            // rank
  std::uint32_t part = 0;  // index among the server's parts
  std::int64_t round = 0;  // push: number of this worker's earlier pushes of the part; reply: updates made so far
  std::int64_t after = 0;  // pull or wait: answer once this many pushes of every worker are in the weights
  double value = 0.0;      // push: the learning rate; reply: the part's importance
  std::uint64_t payload_bytes = 0;

  Frame pack() const;
  // Throws FabricError naming the field that makes no sense. `from`: the sender according to the connection.
  static ServerMessage unpack(const Frame& frame, int from);
};

// Tags of messages to servers and of their replies; kBackground is added for the background lane.
inline constexpr Tag kServerTag = 0x20000001, kServerReplyTag = 0x20000002;

struct ServerSetup {
  // When a push becomes an update.
  enum class Apply {
    kMean,           // once all workers' pushes of a round are there: the mean, added up in rank order
    kArrival,        // each push at once, in the order of arrival; with a P-th of the rate
    kTurns,          // worker 0, 1, … P-1, 0, …: early ones wait for their turn; with a P-th of the rate
    kMeanByArrival,  // as kMean, added up as they come: none waits in memory, but the last bits differ between runs
  };

  Apply apply = Apply::kMean;
  bool scores = false;              // keep every part's importance
  std::vector<std::size_t> counts;  // floats of each part, in the order of the flat model
  OptimizerOptions optimizer;       // its groups without their names
  GroupMap groups{};                // where those groups lie, over all parts in a row

  std::string to_text() const;
  static ServerSetup from_text(const std::string& text);  // throws FabricError
};

}  // namespace slipstream
