// SPDX-License-Identifier: Apache-2.0
//
// ServerHost: the parameter server of this process. It listens for the workers' messages, hands each to a ShardServer and
// sends what that answers, until every worker has said goodbye. It works where messages come in, on the fabric's I/O
// thread: a push is added to its sum when it is there, and no thread of ours has to wake up for it.
//
// May be opened and closed any number of times; all processes of a job do so together. A SimWorld's servers run the same
// ShardServer in their own loop (sim/sim_job.cc).
#pragma once

#include <slipstream/fabric/fabric.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "server/shard.h"

namespace slipstream {

// Why workers leave their servers. The largest of what they said counts.
//   kDone      the training has ended           kStopped    the user asked for it
//   kBackSoon  they open their servers again    kRegroups   the same, in the next group of an elastic job
enum class Goodbye { kDone, kStopped, kBackSoon, kRegroups };

class ServerHost final : public Listener {
 public:
  explicit ServerHost(Fabric& net);
  ~ServerHost() override;
  ServerHost(const ServerHost&) = delete;
  ServerHost& operator=(const ServerHost&) = delete;

  // Until all workers have said goodbye; throws FabricError where the job fails before. Why they did.
  Goodbye wait();

  // A process serves itself where there are no processes that only do that.
  static bool needed(const Fabric& net) { return net.servers().first == 0; }

 private:
  void begins(int from, Tag tag, const LetterHead& head, std::uint64_t body_bytes) override;
  void arrived(int from, Tag tag, const LetterHead& head, std::span<const std::byte> body, Answers& answers) override;
  bool finished(int from, Tag tag) const override { return left_.count({from, tag}) > 0; }
  void failed(const std::string& text) override;

  Fabric& net_;
  const int server_;
  ShardServer shard_;
  std::set<std::pair<int, Tag>> left_;  // said goodbye; the I/O thread's
  std::mutex mutex_;                    // guards what follows
  std::condition_variable ended_;
  int goodbyes_ = 0;
  Goodbye why_ = Goodbye::kDone;
  std::optional<std::string> failure_;
};

// A worker's last word to all servers, on both lanes.
void leave_servers(Fabric& net, Goodbye why);

}  // namespace slipstream
