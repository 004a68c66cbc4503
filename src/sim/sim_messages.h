// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks of a simulated job. The n-th send of a rank to another with a tag meets the n-th recv
// there, even if one of the two failed: a lost message fails its own recv and does not shift the later ones. A send is
// complete when the message has left the sender's port, a recv when it has arrived.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <deque>
#include <map>
#include <memory>
#include <tuple>

#include "sim/sim_operation.h"

namespace slipstream {

// A message for which no recv was posted.
struct SimLetter {
  int from = 0;
  Tag tag = 0;
  std::vector<std::byte> bytes;
};

class SimMessages {
 public:
  explicit SimMessages(SimCore& core) : core_(core) {}

  InFlight send(int from, int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more);
  InFlight recv(int to, int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more);
  SimLetter next(int to);

  void lose_rank(int rank);          // it crashed: what has not left it is lost, messages to it are refused
  void cut(const Fault& partition);  // what is under way across is lost

 private:
  struct Message;
  struct Expected;
  class SendOperation;
  class RecvOperation;
  struct Channel {
    std::deque<std::shared_ptr<Message>> sent;       // no recv yet
    std::deque<std::shared_ptr<Expected>> expected;  // not sent yet
  };

  const void* mailbox(int rank) const { return &core_.awaited[static_cast<std::size_t>(rank)]; }  // what next() awaits
  void check_peer(int rank, int peer, std::string_view what) const;
  void remember(const std::shared_ptr<Message>& message);

  SimCore& core_;
  std::map<std::tuple<int, int, Tag>, Channel> channels_;  // by (from, to, tag); empty ones are dropped
  std::vector<std::shared_ptr<Message>> under_way_;        // only kept if there are faults that may hit them
};

}  // namespace slipstream
