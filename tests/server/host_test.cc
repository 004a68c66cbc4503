// SPDX-License-Identifier: Apache-2.0
//
// The parameter server over the real wire, all ranks threads of this process.
#include "server/host.h"

#include <gtest/gtest.h>

#include "fabric/loopback.h"
#include "server/client.h"

namespace slipstream {
namespace {

using test::loopback;
using test::message_of;
using test::run_ranks;

// Some rounds of pushing and pulling; every part's weights at the end, by rank.
std::vector<Floats> train(const std::function<void(const std::function<void(Fabric&)>&)>& on_all_workers, int workers) {
  std::vector<Floats> results(static_cast<std::size_t>(workers));
  on_all_workers([&](Fabric& net) {
    Floats weights(5000, 1.0F), gradient(weights.size()), pulled(weights.size());
    ServerClient client;
    std::optional<ServerHost> host;
    if (ServerHost::needed(net)) host.emplace(net);
    client.open(net, ServerClient::plan({0, 17, 3000, 5000}, net.servers().count, 4096), ServerSetup::Apply::kMean,
                false, {.lr = 0.1, .momentum = 0.9}, {}, weights);
    for (int round = 0; round < 8; ++round) {
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = 0.3F * static_cast<float>((i + static_cast<std::size_t>(round + 3 * net.rank())) % 7) - 1.0F;
      }
      for (std::size_t p = 0; p < client.parts().size(); ++p) {
        const ServerPart& part = client.parts()[p];
        const Tag lane = p % 2 == 0 ? kUrgent : kBackground;
        client.push_pull(p, part.of(gradient), 0.1, part.of(pulled), 0, lane);
      }
      client.wait(kUrgent);
      client.wait(kBackground);
    }
    leave_servers(net, Goodbye::kDone);
    if (host) host->wait();
    results[static_cast<std::size_t>(net.rank())] = pulled;
  });
  return results;
}

Floats expected(int workers) {
  Floats weights(5000, 1.0F), gradient(weights.size());
  const auto optimizer = make_optimizer({.lr = 0.1, .momentum = 0.9}, weights.size());
  for (int round = 0; round < 8; ++round) {
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    for (int r = 0; r < workers; ++r) {
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] += 0.3F * static_cast<float>((i + static_cast<std::size_t>(round + 3 * r)) % 7) - 1.0F;
      }
    }
    optimizer->step(weights, gradient, 1.0F / static_cast<float>(workers));
  }
  return weights;
}

TEST(ServersOverTheWire, BesideTheWorkersGiveWhatOneOptimizerGives) {
  for (int workers : {1, 2, 3}) {
    const auto results =
        train([workers](const auto& body) { run_ranks(workers, [&](MeshFabric& net) { body(net); }); }, workers);
    for (const Floats& result : results) EXPECT_EQ(result, expected(workers)) << workers << " workers";
  }
}

// Workers and servers that are ranks of their own, each on a thread with its endpoint.
std::vector<std::exception_ptr> run_job(int workers, int servers, const std::function<void(Fabric&)>& worker,
                                        const std::function<void(MeshFabric&)>& server) {
  const Hub hub(test::hub_for(workers + servers));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(workers + servers));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers + servers; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Rendezvous at = loopback(hub, rank, workers);
        at.servers = servers;
        MeshFabric net(at);
        at.serves() ? server(net) : worker(net);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(ServersOverTheWire, AsRanksOfTheirOwnGiveTheSame) {
  for (int servers : {1, 2}) {
    const auto results = train(
        [servers](const auto& body) {
          for (const auto& error : run_job(2, servers, body, [](MeshFabric& net) { ServerHost(net).wait(); })) {
            if (error) std::rethrow_exception(error);
          }
        },
        2);
    for (const Floats& result : results) EXPECT_EQ(result, expected(2)) << servers << " servers";
  }
}

TEST(ServersOverTheWire, ThatRefuseAMessageTellEverybodyWhy) {
  const auto errors = run_job(
      2, 1,
      [](Fabric& net) {
        const auto frame = ServerMessage{.kind = ServerMessage::Kind::kReply, .from = net.rank()}.pack();
        if (net.rank() == 1) net.send(2, kServerTag, frame).wait();
        ServerMessage::Frame never;
        net.recv(2, kServerReplyTag, never).wait();
      },
      [](MeshFabric& net) { ServerHost(net).wait(); });
  for (std::size_t rank : {0, 1, 2}) {
    const std::string text = message_of<FabricError>(errors[rank]);
    EXPECT_NE(text.find("server 0 refuses"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  }
}

TEST(ServersOverTheWire, AWorkerThatLeavesWithoutAWordEndsItsServer) {
  run_ranks(1, [](MeshFabric& net) { const ServerHost host(net); });  // returns: nothing hangs
}

TEST(ServersOverTheWire, AreOpenedAgainInTheSameProcess) {
  std::vector<Floats> results;
  run_ranks(2, [&](MeshFabric& net) {
    for (int time = 0; time < 20; ++time) {
      const auto again = train([&](const auto& body) { body(net); }, 2);
      if (net.rank() == 0) results.push_back(again[0]);
    }
  });
  for (const Floats& result : results) EXPECT_EQ(result, expected(2));
  EXPECT_EQ(results.size(), 20U);
}

}  // namespace
}  // namespace slipstream
