// SPDX-License-Identifier: Apache-2.0
//
// ServerHost: the parameter server of this process. It listens for the workers' messages, hands each to a ShardServer
// and sends the replies, until every worker has said goodbye. It runs on the fabric's I/O thread: a push is added to
// its sum as it arrives, without waking up another thread.
//
// May be opened and closed any number of times; all processes of a job do so together. A SimWorld's servers run the
// same ShardServer in their own loop (sim/sim_job.cc).
#pragma once

#include <slipstream/fabric/fabric.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "server/shard.h"

namespace slipstream {

// Why workers leave their servers. Where their reasons differ, the largest counts.
//   kDone      the training has ended           kStopped    the user asked for it
//   kBackSoon  they open their servers again    kRegroups   the same, in the next group of an elastic job
enum class Goodbye { kDone, kStopped, kBackSoon, kRegroups };

class ServerHost final : public Listener {
 public:
  explicit ServerHost(Fabric& net);
  ~ServerHost() override;
  ServerHost(const ServerHost&) = delete;
  ServerHost& operator=(const ServerHost&) = delete;

  // Waits until all workers have said goodbye and returns why; throws FabricError if the job fails before.
  Goodbye wait();

  // Is there a server beside this worker? Not where other processes only serve.
  static bool needed(const Fabric& net) { return net.servers().first == 0; }

 private:
  void begins(int from, Tag tag, const LetterHead& head, std::uint64_t body_bytes) override;
  void arrived(int from, Tag tag, const LetterHead& head, std::span<const std::byte> body, Answers& answers) override;
  bool finished(int from, Tag tag) const override { return left_.count({from, tag}) > 0; }
  void failed(const std::string& text) override;

  Fabric& net_;
  const int server_;
  ShardServer shard_;
  std::set<std::pair<int, Tag>> left_;  // (worker, tag) that said goodbye; I/O thread only
  std::mutex mutex_;                    // guards what follows
  std::condition_variable ended_;
  int goodbyes_ = 0;
  Goodbye why_ = Goodbye::kDone;
  std::optional<std::string> failure_;
};

// Sends kBye to all servers, on both lanes; returns when the messages have left.
void leave_servers(Fabric& net, Goodbye why);

}  // namespace slipstream
