// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of a user's own loop: buffers and torch's random numbers go on as well.
#include <slipstream/runtime/session.h>

#include "fabric/loopback.h"
#include "task/files.h"

namespace slipstream {
namespace {

torch::nn::Sequential make_net(bool drops) {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::BatchNorm1d(16),
                               torch::nn::Dropout(drops ? 0.5 : 0.0), torch::nn::Linear(16, 4));
}

void train(Session& session, torch::nn::Sequential& net, int rank, std::int64_t from, std::int64_t to) {
  for (std::int64_t t = from; t < to; ++t) {
    auto random = torch::make_generator<torch::CPUGeneratorImpl>(static_cast<std::uint64_t>(100 * rank + t));
    const auto x = torch::randn({8, 6}, random);
    auto loss = net->forward(x).pow(2).sum();
    loss.backward();
    session.step(loss.item<double>());
  }
}

std::vector<torch::Tensor> tensors_of(const torch::nn::Sequential& net) {
  std::vector<torch::Tensor> all;
  for (const auto& p : net->parameters()) all.push_back(p.detach().clone());
  for (const auto& b : net->buffers()) all.push_back(b.clone());
  return all;
}

void expect_equal(const torch::nn::Sequential& a, const torch::nn::Sequential& b) {
  const auto mine = tensors_of(a), theirs = tensors_of(b);
  ASSERT_EQ(mine.size(), theirs.size());
  for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_TRUE(torch::equal(mine[i], theirs[i])) << "tensor " << i;
}

const SessionOptions kOptions{.optimizer = {.lr = 0.01}};

TEST(SessionCheckpoint, DropoutAndBatchNormGoOnAsIfNothingHadHappened) {
  const test::TempDir files;
  auto whole = make_net(true), resumed = make_net(true);
  MeshFabric world(Rendezvous{});
  {
    torch::manual_seed(5);
    Session session(world, *whole, kOptions);
    train(session, whole, 0, 0, 6);
    session.save_checkpoint(files.path());
    train(session, whole, 0, 6, 10);
    session.finish();
  }
  torch::manual_seed(99);
  Session session(world, *resumed, kOptions);
  EXPECT_EQ(session.resume(files.path()), 6);
  train(session, resumed, 0, 6, 10);
  session.finish();
  expect_equal(resumed, whole);
}

TEST(SessionCheckpoint, TwoRanksSaveOnTheWayAndResume) {
  const test::TempDir files;
  std::vector<torch::nn::Sequential> whole{make_net(false), make_net(false)}, resumed{make_net(false), make_net(false)};
  test::run_ranks(2, [&](MeshFabric& world) {
    auto& net = whole[static_cast<std::size_t>(world.rank())];
    SessionOptions options = kOptions;
    options.strategy = "local";
    options.set = {"period=5"};
    options.checkpoint = {.folder = files.path(), .every = "4"};
    Session session(world, *net, options);
    train(session, net, world.rank(), 0, 11);
    session.finish();
  });
  test::run_ranks(2, [&](MeshFabric& world) {
    auto& net = resumed[static_cast<std::size_t>(world.rank())];
    SessionOptions options = kOptions;
    options.strategy = "local";
    options.set = {"period=5"};
    Session session(world, *net, options);
    EXPECT_EQ(session.resume(files.path()), 8);
    train(session, net, world.rank(), 8, 11);
    session.finish();
  });
  expect_equal(resumed[0], whole[0]);
  expect_equal(resumed[1], whole[1]);
}

TEST(SessionCheckpoint, AnotherModelOrAFolderThatCannotBeWrittenIsRefused) {
  const test::TempDir files;
  auto net = make_net(false);
  MeshFabric world(Rendezvous{});
  Session session(world, *net, kOptions);
  session.save_checkpoint(files.path());
  const auto file = files.write("file", "x");
  EXPECT_THROW(session.save_checkpoint(file / "below"), ConfigError);
  session.finish();
  torch::nn::Sequential other(torch::nn::Linear(6, 3));
  Session different(world, *other, kOptions);
  EXPECT_THROW(different.resume(files.path()), ConfigError);
}

}  // namespace
}  // namespace slipstream
