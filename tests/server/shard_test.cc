// SPDX-License-Identifier: Apache-2.0
#include "server/shard.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <cstring>

namespace slipstream {
namespace {

using Kind = ServerMessage::Kind;
using Apply = ServerSetup::Apply;
std::span<const std::byte> payload_of(std::span<const std::byte> bytes) { return bytes; }
std::span<const std::byte> payload_of(const Floats& values) { return std::as_bytes(std::span(values)); }
std::span<const std::byte> payload_of(const std::string& text) { return std::as_bytes(std::span(text)); }

ServerMessage setup_of(int worker, const std::string& text) {
  return {.kind = Kind::kSetup, .from = worker, .payload_bytes = text.size()};
}

// A server with parts of 2 and 1 weights, all 1, that does plain SGD; every worker has introduced itself.
class Shard {
 public:
  explicit Shard(int workers, Apply apply = Apply::kMean, bool scores = false, double momentum = 0.0)
      : server_(3, workers), workers_(workers) {
    const ServerSetup setup{apply, scores, {2, 1}, {.lr = 0.5, .momentum = momentum}};
    const std::string text = setup.to_text();
    for (int w = 0; w < workers; ++w) server_.handle(kUrgent, setup_of(w, text), payload_of(text));
    server_.handle(kUrgent, {.kind = Kind::kWeights, .part = 0, .payload_bytes = 8}, payload_of(Floats{1, 1}));
    ready_ = server_.handle(kUrgent, {.kind = Kind::kWeights, .part = 1, .payload_bytes = 4}, payload_of(Floats{1}));
  }

  auto push(int worker, std::uint32_t part, std::int64_t round, const Floats& g, double lr = 0.5) {
    return server_.handle(kUrgent, {Kind::kPush, worker, part, round, 0, lr, 4 * g.size()}, payload_of(g));
  }
  auto push_pull(int worker, std::uint32_t part, std::int64_t round, const Floats& g, std::int64_t after) {
    return server_.handle(kUrgent, {Kind::kPushPull, worker, part, round, after, 0.5, 4 * g.size()}, payload_of(g));
  }
  auto pull(int worker, std::uint32_t part, std::int64_t after, Tag lane = kUrgent) {
    return server_.handle(lane, {.kind = Kind::kPull, .from = worker, .part = part, .after = after}, {});
  }
  auto ask(Kind kind, int worker, std::int64_t after) {
    return server_.handle(kUrgent, {.kind = kind, .from = worker, .after = after}, {});
  }
  Floats weights(std::uint32_t part) const { return {server_.weights(part).begin(), server_.weights(part).end()}; }

  ShardServer server_;
  int workers_;
  std::vector<ShardServer::Reply> ready_;
};

Floats floats_of(const ShardServer::Reply& reply) { return *reply.payload; }

template <typename Act>
void expect_refused(const Act& act, const std::vector<std::string>& words) {
  try {
    act();
    ADD_FAILURE() << "it was taken";
  } catch (const FabricError& refusal) {
    for (const std::string& word : words) {
      EXPECT_NE(std::string(refusal.what()).find(word), std::string::npos) << word << " in: " << refusal.what();
    }
  }
}

TEST(ShardServer, AnswersAllWorkersOnceAllAreThereWithTheFirstWeights) {
  const Shard shard(3);
  ASSERT_EQ(shard.ready_.size(), 3U);
  for (int w = 0; w < 3; ++w) EXPECT_EQ(shard.ready_[static_cast<std::size_t>(w)].to, w);
}

TEST(ShardServer, UpdatesOnceAllWorkersHavePushedAndAnswersThen) {
  Shard shard(2);
  EXPECT_TRUE(shard.push_pull(1, 0, 0, {2, 4}, 1).empty());
  EXPECT_EQ(shard.weights(0), (Floats{1, 1}));
  const auto replies = shard.push_pull(0, 0, 0, {4, 0}, 1);
  EXPECT_EQ(shard.weights(0), (Floats{-0.5, 0}));  // 1 - 0.5 × mean
  ASSERT_EQ(replies.size(), 2U);
  for (const auto& reply : replies) {
    EXPECT_EQ(floats_of(reply), shard.weights(0));
    EXPECT_EQ(reply.message.round, 1);
  }
  EXPECT_EQ(shard.server_.updates(0), 1);
  EXPECT_EQ(shard.server_.updates(1), 0) << "parts count by themselves";
}

TEST(ShardServer, AddsInRankOrderWhoeverComesFirst) {
  const Floats values[] = {{1e8F, 1}, {1, 1}, {-1e8F, 1}};  // another order gives another sum
  std::vector<int> order{0, 1, 2};
  Floats first;
  do {
    Shard shard(3);
    for (int w : order) shard.push(w, 0, 0, values[w]);
    if (first.empty()) first = shard.weights(0);
    EXPECT_EQ(shard.weights(0), first);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(ShardServer, AddsAsTheyArriveWhereAskedTo) {
  const auto after = [](const std::vector<int>& order) {
    const Floats values[] = {{1e8F, 1}, {3, 1}, {-1e8F, 1}};
    Shard shard(3, Apply::kMeanByArrival);
    for (int w : order) shard.push(w, 0, 0, values[w]);
    return shard.weights(0);
  };
  EXPECT_EQ(after({0, 2, 1}), (Floats{0.5F, 0.5F}));  // (1e8 - 1e8) + 3: nothing is rounded away
  EXPECT_EQ(after({2, 0, 1}), (Floats{0.5F, 0.5F}));
  EXPECT_NE(after({0, 1, 2})[0], 0.5F);
}

TEST(ShardServer, KeepsTheRoundsOfFastWorkersApart) {
  Shard shard(2);
  for (std::int64_t round : {0, 1, 2}) shard.push(1, 1, round, {8});
  EXPECT_EQ(shard.server_.updates(1), 0);
  for (std::int64_t round : {0, 1, 2}) {
    shard.push(0, 1, round, {0});
    EXPECT_EQ(shard.server_.updates(1), round + 1);
    EXPECT_EQ(shard.weights(1), (Floats{1 - 2.0F * static_cast<float>(round + 1)}));
  }
}

TEST(ShardServer, RepliesLeaveInTheOrderOfRequestsLaneByLane) {
  Shard shard(2);
  shard.push(0, 0, 0, {0, 0});
  shard.push(0, 1, 0, {0});
  EXPECT_TRUE(shard.pull(0, 0, 1).empty());
  EXPECT_TRUE(shard.pull(0, 1, 1).empty());
  EXPECT_TRUE(shard.pull(0, 1, 1, kBackground).empty());
  const auto early = shard.push(1, 1, 0, {2});  // part 1 is there, but part 0 was asked for first
  ASSERT_EQ(early.size(), 1U);
  EXPECT_EQ(early[0].lane, kBackground);
  const auto late = shard.push(1, 0, 0, {0, 0});
  ASSERT_EQ(late.size(), 2U);
  EXPECT_EQ(late[0].message.part, 0U);
  EXPECT_EQ(late[1].message.part, 1U);
  EXPECT_EQ(floats_of(late[1]), (Floats{0.5}));
}

TEST(ShardServer, AReplyShowsTheWeightsOfItsVersionNotLaterOnes) {
  Shard shard(2);
  EXPECT_TRUE(shard.push_pull(0, 1, 0, {0}, 1).empty());
  const auto replies = shard.push(1, 1, 0, {4});
  shard.push(1, 1, 1, {4});
  shard.push(0, 1, 1, {4});
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(floats_of(replies[0]), (Floats{0}));
  EXPECT_EQ(shard.weights(1), (Floats{-2}));
}

TEST(ShardServer, ByArrivalEveryPushIsAnUpdateOfItsShare) {
  Shard shard(2, Apply::kArrival);
  EXPECT_EQ(shard.push_pull(1, 1, 0, {4}, 0).size(), 1U);
  EXPECT_EQ(shard.weights(1), (Floats{0}));
  EXPECT_TRUE(shard.push_pull(1, 1, 1, {4}, 1).empty()) << "it asked for a push of worker 0 as well";
  EXPECT_EQ(shard.push(0, 1, 0, {0}).size(), 1U);
  EXPECT_EQ(shard.server_.updates(1), 3);
}

TEST(ShardServer, InTurnsUpdatesAreStrictlyCyclic) {
  Shard shard(3, Apply::kTurns);
  EXPECT_TRUE(shard.push_pull(2, 1, 0, {6}, 0).empty());
  EXPECT_TRUE(shard.push_pull(1, 1, 0, {12}, 0).empty());
  EXPECT_EQ(shard.server_.updates(1), 0);
  const auto replies = shard.push_pull(0, 1, 0, {-6}, 0);
  ASSERT_EQ(replies.size(), 3U);
  for (std::size_t w = 0; w < 3; ++w) {  // each sees its own update and those before, not those after
    EXPECT_EQ(replies[w].to, static_cast<int>(w));
    EXPECT_EQ(floats_of(replies[w]), (Floats{std::array{2.0F, 0.0F, -1.0F}[w]}));
  }
}

TEST(ShardServer, AnswersAWaitOnceAllPartsAreThatFar) {
  Shard shard(2);
  EXPECT_TRUE(shard.ask(Kind::kAwait, 0, 1).empty());
  for (int w : {0, 1}) EXPECT_TRUE(shard.push(w, 0, 0, {0, 0}).empty());
  EXPECT_TRUE(shard.push(0, 1, 0, {0}).empty());
  EXPECT_EQ(shard.push(1, 1, 0, {0}).size(), 1U);
}

TEST(ShardServer, ImportanceIsTheSmoothedMeanOfWeightTimesGradient) {
  Shard shard(2, Apply::kMean, true);
  shard.push(0, 0, 0, {4, 0});
  EXPECT_EQ(shard.push_pull(1, 0, 0, {0, -2}, 1)[0].message.value, (2.0 + 1.0) / 2);  // before the update
  shard.push(0, 0, 1, {2, 0});
  const double product = std::abs(0.0 * 1 + 1.5 * 0) / 2;  // weights are 0 and 1.5, mean gradients 1 and 0
  EXPECT_DOUBLE_EQ(shard.push_pull(1, 0, 1, {0, 0}, 2)[0].message.value, 0.9 * 1.5 + 0.1 * product);
}

TEST(ShardServer, StateReadFromOneAndWrittenToAnotherGoesOnAlike) {
  Shard one(2, Apply::kMean, true, 0.9);
  for (int w : {0, 1}) {
    one.push(w, 0, 0, {1, 2});
    one.push(w, 1, 0, {3});
  }
  const auto read = one.ask(Kind::kReadState, 1, 1);
  ASSERT_EQ(read.size(), 1U);
  Shard other(2, Apply::kMean, true, 0.9);
  const auto bytes = std::as_bytes(std::span(*read[0].payload));
  const ServerMessage write{.kind = Kind::kWriteState, .payload_bytes = bytes.size()};
  EXPECT_EQ(other.server_.handle(kUrgent, write, payload_of(bytes)).size(), 1U);
  for (Shard* shard : {&one, &other}) {
    shard->push(0, 1, 1, {5});
    shard->push(1, 1, 1, {5});
  }
  EXPECT_EQ(other.weights(1), one.weights(1));
  EXPECT_EQ(other.server_.updates(1), 2);
}

TEST(ShardServer, RefusesWhatIsOutOfOrderByNameAndDoesNotCountIt) {
  Shard shard(2);
  shard.push(0, 1, 0, {2});
  expect_refused([&] { shard.push(0, 1, 0, {2}); },
                 {"server 3", "push", "part 1", "round 0", "rank 0", "out of order"});
  expect_refused([&] { shard.push(1, 1, 2, {2}); }, {"rank 1", "round 2", "out of order"});
  expect_refused([&] { shard.push_pull(1, 1, 1, {2}, 2); }, {"rank 1", "out of order"});
  EXPECT_EQ(shard.push_pull(1, 1, 0, {2}, 1).size(), 1U) << "no refused pull is left behind";
  EXPECT_EQ(shard.weights(1), (Floats{0})) << "the mean of 2 and 2, once";
}

TEST(ShardServer, RefusesWhatMakesNoSense) {
  Shard shard(2);
  expect_refused([&] { shard.push(0, 7, 0, {2}); }, {"part 7", "2 parts"});
  expect_refused([&] { shard.push(0, 1, 0, {2, 2}); }, {"8 bytes"});
  expect_refused([&] { shard.push(5, 1, 0, {2}); }, {"rank 5", "worker"});
  shard.push(0, 1, 0, {2}, 0.5);
  expect_refused([&] { shard.push(1, 1, 0, {2}, 0.25); }, {"learning rate is 0.25", "rank 0 is 0.5"});
  expect_refused([&] { shard.ask(Kind::kReply, 0, 0); }, {"reply"});
  expect_refused([&] { shard.server_.handle(kUrgent, setup_of(0, "x"), payload_of(std::string("x"))); },
                 {"introduced itself already"});
}

TEST(ShardServer, RefusesWorkersThatWereToldSomethingElse) {
  ShardServer server(0, 2);
  ServerSetup setup{Apply::kMean, false, {2}, {}};
  std::string text = setup.to_text();
  server.handle(kUrgent, setup_of(0, text), payload_of(text));
  expect_refused([&] { server.handle(kUrgent, {.kind = Kind::kPull, .from = 1}, {}); }, {"introduced"});
  setup.optimizer.momentum = 0.5;
  text = setup.to_text();
  expect_refused([&] { server.handle(kUrgent, setup_of(1, text), payload_of(text)); }, {"rank 1", "differs"});
}

// Parts of 2 and 1 weights, all 1: the first weight at half the rate, the last without decay.
TEST(ShardServer, EveryGroupIsMovedWithItsOwnRateAndDecay) {
  ServerSetup setup{Apply::kMean, false, {2, 1}, {.lr = 0.5, .momentum = 0.0, .weight_decay = 2.0}};
  setup.optimizer.groups = {{.lr_factor = 0.5}, {.weight_decay = 0.0}};
  setup.groups.append(1, 0);
  setup.groups.append(1, GroupMap::kNone);
  setup.groups.append(1, 1);
  ShardServer server(0, 1);
  const std::string text = setup.to_text();
  server.handle(kUrgent, setup_of(0, text), payload_of(text));
  server.handle(kUrgent, {.kind = Kind::kWeights, .part = 0, .payload_bytes = 8}, payload_of(Floats{1, 1}));
  server.handle(kUrgent, {.kind = Kind::kWeights, .part = 1, .payload_bytes = 4}, payload_of(Floats{1}));
  server.handle(kUrgent, {Kind::kPush, 0, 0, 0, 0, 0.25, 8}, payload_of(Floats{4, 4}));
  server.handle(kUrgent, {Kind::kPush, 0, 1, 0, 0, 0.25, 4}, payload_of(Floats{4}));
  EXPECT_EQ(server.weights(0)[0], 1 - 0.125F * (4 + 2));
  EXPECT_EQ(server.weights(0)[1], 1 - 0.25F * (4 + 2));
  EXPECT_EQ(server.weights(1)[0], 1 - 0.25F * 4);
}

TEST(ServerMessage, SurvivesTheWireAndIsRefusedWhereAByteIsWrong) {
  const ServerMessage sent{Kind::kPush, 258, 7, 1'000'000'000'000, 3, 0.05, 4096};
  const auto frame = sent.pack();
  const ServerMessage back = ServerMessage::unpack(frame, 258);
  EXPECT_EQ(back.kind, sent.kind);
  EXPECT_EQ(back.part, sent.part);
  EXPECT_EQ(back.round, sent.round);
  EXPECT_EQ(back.after, sent.after);
  EXPECT_EQ(back.value, sent.value);
  EXPECT_EQ(back.payload_bytes, sent.payload_bytes);
  for (const auto& [at, what] : {std::pair{0, "SLPS"},
                                 {4, "version"},
                                 {5, "kind"},
                                 {6, "sender"},
                                 {13, "zero"},
                                 {23, "negative"},
                                 {31, "negative"},
                                 {47, "larger"}}) {
    auto damaged = frame;
    damaged[static_cast<std::size_t>(at)] ^= std::byte{0xF0};
    expect_refused([&] { ServerMessage::unpack(damaged, 258); }, {"rank 258", what});
  }
}

TEST(ServerSetup, SurvivesItsTextAndIsRefusedWhereItIsCutShort) {
  const ServerSetup setup{Apply::kTurns, true, {5, 0, 123456789}, {.kind = "adamw", .lr = 1.0 / 3, .beta2 = 0.95}};
  const std::string text = setup.to_text();
  const ServerSetup back = ServerSetup::from_text(text);
  EXPECT_EQ(back.apply, setup.apply);
  EXPECT_EQ(back.scores, setup.scores);
  EXPECT_EQ(back.counts, setup.counts);
  EXPECT_EQ(back.optimizer.kind, "adamw");
  EXPECT_EQ(back.optimizer.lr, 1.0 / 3);
  EXPECT_EQ(back.optimizer.beta2, 0.95);
  expect_refused([&] { ServerSetup::from_text(text.substr(0, text.size() - 12)); }, {"cannot be read"});
  expect_refused([&] { ServerSetup::from_text("9" + text.substr(1)); }, {"cannot be read"});
}

TEST(ServerSetup, GroupsSurviveItsTextAndAreRefusedWhereTheyDoNotCoverTheParts) {
  ServerSetup setup{Apply::kMean, false, {5, 2}, {.weight_decay = 0.5}};
  setup.optimizer.groups = {{.names = {"not told"}, .lr_factor = 1.0 / 3}, {.weight_decay = 0.125}};
  const auto map = [](std::initializer_list<std::pair<std::size_t, int>> stretches) {
    GroupMap groups;
    for (const auto& [count, group] : stretches) groups.append(count, group);
    return groups;
  };
  setup.groups = map({{3, 1}, {3, GroupMap::kNone}, {1, 0}});
  const ServerSetup back = ServerSetup::from_text(setup.to_text());
  EXPECT_EQ(back.groups.stretches(), setup.groups.stretches());
  for (const int group : {GroupMap::kNone, 0, 1}) {
    EXPECT_EQ(back.optimizer.lr_factor(group), setup.optimizer.lr_factor(group));
    EXPECT_EQ(back.optimizer.decay(group), setup.optimizer.decay(group));
  }
  for (const GroupMap& wrong : {map({{6, 0}}), map({{8, 0}}), map({{7, 2}}), map({{7, -2}}), map({})}) {
    setup.groups = wrong;
    expect_refused([&] { ServerSetup::from_text(setup.to_text()); }, {"cannot be read"});
  }
}

}  // namespace
}  // namespace slipstream
