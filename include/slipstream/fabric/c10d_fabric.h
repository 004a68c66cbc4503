// SPDX-License-Identifier: Apache-2.0
//
// C10dFabric: the real wire. Dense collectives are those of libtorch's c10d over Gloo; the 16-bit sum is composed of
// two of them on a thread of its own. No torch in this header.
//
// A rendezvous store (one TCP port) is where the ranks find each other; it lives in the supervisor of a local job, else
// in rank 0. Through it every rank shows a sign of life twice a second, and the first one to notice a failure announces
// it, so that all others stop with the same message instead of waiting for their timeouts.
//
// Workers and servers talk over two groups of connections of their own, one for each lane. An endpoint whose rank is
// size or more is a server's: it has these only. A server may wait for its next message as long as nobody is lost.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <memory>
#include <string>

namespace slipstream {

struct Rendezvous {
  int rank = 0;
  int size = 1;     // workers
  int servers = 0;  // processes that only serve: ranks size … size + servers - 1
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  bool hosts_store = false;          // this process opens the store
  std::string interface;             // network interface for the data; empty: the one that reaches master_addr
  double timeout_seconds = 120;      // of one operation
  double join_timeout_seconds = 60;  // for all ranks to appear

  bool serves() const { return rank >= size; }
};

class C10dFabric final : public Fabric {
 public:
  // Blocks until all workers have joined; a server's also until all servers have and the workers have opened them.
  // Throws FabricError naming the ranks that did not, ConfigError for a port in use.
  explicit C10dFabric(const Rendezvous& rendezvous);
  ~C10dFabric() override;

  int rank() const override;
  int size() const override;
  Clock& clock() override { return clock_; }
  using Fabric::sum;
  InFlight sum(std::span<float> values, Wire wire) override;
  InFlight gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  InFlight send(int to, Tag tag, std::span<const std::byte> bytes) override;
  InFlight recv(int from, Tag tag, std::span<std::byte> bytes) override;
  int servers() const override;
  bool beside(int rank) const override;
  void open_servers(const std::function<void(Fabric&)>& serve) override;
  void close_servers() override;
  void announce_failure(const std::string& text) override;
  void wait_any(std::span<Operation* const> operations) override;

  // Which way the data goes, for people: "10.88.0.1 on e0".
  const std::string& interface() const;

 private:
  struct State;
  SteadyClock clock_;
  std::shared_ptr<State> state_;  // shared with running operations
};

// The rendezvous store of a supervised job.
class StoreHost {
 public:
  explicit StoreHost(int port);  // 0: any free port; ConfigError where the port is in use
  ~StoreHost();
  int port() const;

  // Makes every rank's next wait throw FabricError with this text. The first announcement stands.
  void announce_failure(const std::string& text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace slipstream
