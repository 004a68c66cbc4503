// SPDX-License-Identifier: Apache-2.0
#include <slipstream/runtime/session.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "fabric/loopback.h"
#include "fabric/metered_fabric.h"
#include "sim/sim_world.h"
#include "task/files.h"

namespace slipstream {
namespace {

using test::run_ranks;

constexpr std::int64_t kBatch = 8;

// Ranks are threads here, and torch's generator is one for all: nets are made before the threads start.
torch::nn::Sequential make_net(std::uint64_t seed = 3) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 4));
}

std::vector<torch::nn::Sequential> make_nets(int count) {
  std::vector<torch::nn::Sequential> nets;
  for (int r = 0; r < count; ++r) nets.push_back(make_net(3 + static_cast<std::uint64_t>(r)));  // only rank 0's counts
  return nets;
}

// The samples of step t: `ranks` shares, of which `rank` gets its own and -1 all of them.
torch::Tensor loss_of(torch::nn::Sequential& net, std::int64_t t, int rank = -1, int ranks = 1) {
  auto random = torch::make_generator<torch::CPUGeneratorImpl>(static_cast<std::uint64_t>(100 + t));
  auto x = torch::randn({ranks * kBatch, 6}, random);
  auto y = torch::randint(0, 4, {ranks * kBatch}, random, torch::kLong);
  if (rank >= 0) {
    x = x.slice(0, rank * kBatch, (rank + 1) * kBatch);
    y = y.slice(0, rank * kBatch, (rank + 1) * kBatch);
  }
  return torch::cross_entropy_loss(net->forward(x), y);
}

torch::Tensor weights_of(const torch::nn::Sequential& net) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& p : net->parameters()) parts.push_back(p.detach().flatten());
  return torch::cat(parts);
}

double worst_difference(const torch::nn::Sequential& a, const torch::nn::Sequential& b) {
  return (weights_of(a) - weights_of(b)).abs().max().item<double>();
}

// A libtorch loop as a user would write it for one worker, with the samples of `ranks`.
void train_bare(torch::nn::Sequential& net, torch::optim::Optimizer& opt, std::int64_t steps, int ranks) {
  for (std::int64_t t = 0; t < steps; ++t) {
    opt.zero_grad();
    loss_of(net, t, -1, ranks).backward();
    opt.step();
  }
}

// The same loop with a Session.
void train(Fabric& world, torch::nn::Sequential& net, const SessionOptions& options, std::int64_t steps) {
  Session session(world, *net, options);
  for (std::int64_t t = 0; t < steps; ++t) {
    auto loss = loss_of(net, t, world.rank(), world.size());
    loss.backward();
    session.step(loss.item<double>());
  }
  session.finish();
  EXPECT_EQ(session.steps(), steps);
  EXPECT_TRUE(session.agreement());
}

TEST(Session, AloneEqualsABareLoopWithTorchsSgd) {
  auto bare = make_net(), net = make_net();
  torch::optim::SGD opt(bare->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3));
  train_bare(bare, opt, 40, 1);
  MeshFabric world(Rendezvous{});
  train(world, net, {.optimizer = {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3}}, 40);
  EXPECT_LT(worst_difference(net, bare), 1e-6);
  EXPECT_GT(worst_difference(net, make_net()), 0.1);  // and it has gone somewhere
}

TEST(Session, AloneEqualsABareLoopWithTorchsAdam) {
  auto bare = make_net(), net = make_net();
  torch::optim::Adam opt(bare->parameters(), torch::optim::AdamOptions(0.01));
  train_bare(bare, opt, 40, 1);
  MeshFabric world(Rendezvous{});
  train(world, net, {.optimizer = {.kind = "adam", .lr = 0.01}}, 40);
  EXPECT_LT(worst_difference(net, bare), 2e-6);
}

TEST(Session, TheLearningRateFollowsTheFunctionOfTheStep) {
  auto bare = make_net(), net = make_net();
  torch::optim::SGD opt(bare->parameters(), torch::optim::SGDOptions(1));
  const auto lr = [](std::int64_t t) { return 0.5 / static_cast<double>(1 + t); };
  for (std::int64_t t = 0; t < 10; ++t) {
    opt.zero_grad();
    loss_of(bare, t).backward();
    static_cast<torch::optim::SGDOptions&>(opt.param_groups()[0].options()).lr(lr(t));
    opt.step();
  }
  MeshFabric world(Rendezvous{});
  train(world, net, {.optimizer = {.momentum = 0}, .lr = lr}, 10);
  EXPECT_LT(worst_difference(net, bare), 1e-6);
}

TEST(Session, ThreeWorkersEqualOneWithTheThreefoldBatch) {
  auto one = make_net();
  torch::optim::SGD opt(one->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  train_bare(one, opt, 30, 3);
  auto nets = make_nets(3);
  run_ranks(3, [&](MeshFabric& world) {
    // Every tensor a bucket of its own: as many sums in flight as there are.
    train(world, nets[static_cast<std::size_t>(world.rank())],
          {.set = {"first_bucket_mb=0", "bucket_mb=0"}, .optimizer = {.lr = 0.1}}, 30);
  });
  for (const auto& net : nets) {
    EXPECT_LT(worst_difference(net, one), 1e-5);
    EXPECT_TRUE(torch::equal(weights_of(net), weights_of(nets[0])));
  }
}

TEST(Session, AccumulatedBackwardPassesEqualOneWithAllSamples) {
  auto whole = make_net();
  torch::optim::SGD opt(whole->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  train_bare(whole, opt, 10, 4);
  auto nets = make_nets(2);
  SimWorld({.ranks = 2}).run([&](SimPort& world) {
    auto& net = nets[static_cast<std::size_t>(world.rank())];
    Session session(world, *net, {.optimizer = {.lr = 0.1}});
    for (std::int64_t t = 0; t < 10; ++t) {
      {
        const auto hold = session.hold();
        (loss_of(net, t, 2 * world.rank(), 4) / 2).backward();
      }
      (loss_of(net, t, 2 * world.rank() + 1, 4) / 2).backward();
      session.step(1);
    }
  });
  for (const auto& net : nets) EXPECT_LT(worst_difference(net, whole), 1e-5);
}

// Ten steps of a strategy, each of one backward pass over all samples or of two over their halves.
std::vector<torch::Tensor> train_in_passes(const std::string& strategy, int workers, bool halves) {
  auto nets = make_nets(workers);
  run_ranks(workers, [&](MeshFabric& world) {
    auto& net = nets[static_cast<std::size_t>(world.rank())];
    Session session(world, *net, {.strategy = strategy, .optimizer = {.lr = 0.05, .momentum = 0.5}});
    const int shares = 2 * workers, first = 2 * world.rank();
    for (std::int64_t t = 0; t < 10; ++t) {
      std::optional<Session::Hold> hold;
      if (halves) hold.emplace(session.hold());
      const auto one = loss_of(net, t, first, shares) / 2;
      if (halves) one.backward();
      hold.reset();
      const auto other = loss_of(net, t, first + 1, shares) / 2;
      (halves ? other : one + other).backward();
      session.step(one.item<double>() + other.item<double>());
    }
    session.finish();
    EXPECT_TRUE(session.agreement());
  });
  std::vector<torch::Tensor> weights;
  for (const auto& net : nets) weights.push_back(weights_of(net));
  return weights;
}

// The column `accumulate` of the table in docs/strategies.md. Two runs of several workers differ where a clock decides.
TEST(Session, AccumulatedBackwardPassesEqualOneWithEveryStrategy) {
  const Registry registry = Registry::builtin();
  const torch::Tensor start = weights_of(make_net());
  for (const StrategyInfo& info : registry.all()) {
    for (const int workers : {1, 2}) {
      if (workers > 1 && info.configure().follows_clock()) continue;
      const auto whole = train_in_passes(info.name, workers, false), halves = train_in_passes(info.name, workers, true);
      EXPECT_LT((whole[0] - halves[0]).abs().max().item<double>(), 1e-5) << info.name << ", " << workers << " workers";
      EXPECT_GT((whole[0] - start).abs().max().item<double>(), 0.01) << info.name;
    }
  }
}

TEST(Session, ParameterGroupsEqualTorchs) {
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  auto bare = make_net();
  std::vector<torch::Tensor> weights, biases;
  for (const auto& item : bare->named_parameters()) {
    (item.key().find("bias") == std::string::npos ? weights : biases).push_back(item.value());
  }
  const auto rule = [](double lr, double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(lr).weight_decay(decay));
  };
  torch::optim::AdamW opt(Groups{{weights, rule(0.01, 0.5)}, {biases, rule(0.03, 0.0)}});
  train_bare(bare, opt, 20, 3);
  const SessionOptions options{.optimizer = {.kind = "adamw",
                                             .lr = 0.01,
                                             .weight_decay = 0.5,
                                             .groups = {{.names = {"*.bias"}, .lr_factor = 3.0, .weight_decay = 0.0}}}};
  auto nets = make_nets(3);
  SimWorld({.ranks = 3}).run([&](SimPort& world) {
    train(world, nets[static_cast<std::size_t>(world.rank())], options, 20);
  });
  for (const auto& net : nets) EXPECT_LT(worst_difference(net, bare), 1e-4);
}

// Does nothing but write down when buckets come.
struct Witness final : Strategy {
  explicit Witness(std::vector<std::string>& events) : events_(events) {}
  BucketRule buckets() const override { return BucketRule::per_slot(); }
  void on_bucket_ready(Step&, const Bucket& bucket) override { events_.push_back(std::to_string(bucket.index)); }
  void on_step(Step&) override { events_.push_back("step"); }
  void visit(StateVisitor&) override {}

  std::vector<std::string>& events_;
};

TEST(Session, BucketsLeaveDuringTheLastBackwardOnly) {
  std::vector<std::string> events;
  StrategyInfo info;
  info.name = "witness";
  info.configure = [&events] {
    return StrategyInfo::Configured{
        nullptr, OptionSet("witness"), [&events] { return std::make_unique<Witness>(events); }, {}, {}};
  };
  Registry registry;
  registry.add(info);
  auto net = make_net();
  MeshFabric world(Rendezvous{});
  Session session(world, *net, {.strategy = "witness", .registry = registry});
  for (int t = 0; t < 2; ++t) {
    {
      const auto hold = session.hold();
      loss_of(net, t).backward();
      events.push_back("held");
    }
    loss_of(net, t).backward();
    events.push_back("backward");
    session.step(1);
    EXPECT_EQ(events, (std::vector<std::string>{"held", "0", "1", "2", "3", "backward", "step"}));
    events.clear();
  }
}

TEST(Session, ASecondBackwardWithoutAHoldIsAnErrorThatNamesTheParameter) {
  auto net = make_net();
  MeshFabric alone{Rendezvous{}};
  Session session(alone, *net, {});
  loss_of(net, 0).backward();
  loss_of(net, 1).backward();
  test::expect_error<ConfigError>([&] { session.step(1); }, {"parameter '", "hold()", "opt.no_sync()"});
  test::expect_error<ConfigError>([&] { session.join(); }, {"second gradient"});
  test::expect_error<ConfigError>([&] { session.finish(); }, {"second gradient"});
}

TEST(Session, AfterFinishThereIsNoStepAndBackwardIsTheCallersOwn) {
  auto net = make_net();
  MeshFabric alone{Rendezvous{}};
  Session session(alone, *net, {});
  loss_of(net, 0).backward();
  session.step(1);
  session.finish();
  const torch::Tensor before = weights_of(net);
  session.finish();
  loss_of(net, 1).backward();
  loss_of(net, 2).backward();
  test::expect_error<ConfigError>([&] { session.step(1); }, {"after finish()"});
  EXPECT_TRUE(torch::equal(weights_of(net), before));
}

TEST(Session, ClippingLimitsTheNormOfTheAveragedGradient) {
  constexpr double kClip = 0.05;
  auto one = make_net();
  torch::optim::SGD opt(one->parameters(), torch::optim::SGDOptions(0.5));
  for (std::int64_t t = 0; t < 10; ++t) {
    opt.zero_grad();
    ((loss_of(one, t, 0, 2) + loss_of(one, t, 1, 2)) / 2).backward();
    EXPECT_GT(torch::nn::utils::clip_grad_norm_(one->parameters(), kClip), kClip);
    opt.step();
  }
  auto nets = make_nets(2);
  SimWorld({.ranks = 2}).run([&](SimPort& world) {
    train(world, nets[static_cast<std::size_t>(world.rank())],
          {.optimizer = {.lr = 0.5, .momentum = 0, .clip_norm = kClip}}, 10);
  });
  for (const auto& net : nets) EXPECT_LT(worst_difference(net, one), 1e-6);
}

TEST(Session, BuffersAndFrozenParametersStartAsThoseOfRankZero) {
  constexpr std::int64_t kMany = (std::int64_t{1} << 40) + 7;  // more than a float holds
  SimWorld({.ranks = 3}).run([&](SimPort& world) {
    torch::NoGradGuard no_grad;
    torch::nn::BatchNorm1d norm(3);
    auto frozen = norm->register_parameter("frozen", torch::full({3}, 1.5F + static_cast<float>(world.rank())), false);
    norm->running_mean.fill_(0.1F + static_cast<float>(world.rank()));
    norm->num_batches_tracked.fill_(kMany + world.rank());
    const Session session(world, *norm, {});
    EXPECT_TRUE(torch::equal(frozen, torch::full({3}, 1.5F)));
    EXPECT_TRUE(torch::equal(norm->running_mean, torch::full({3}, 0.1F)));
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), kMany);
  });
}

TEST(Session, ABufferMayHoldInfinities) {
  SimWorld({.ranks = 2}).run([](SimPort& world) {
    auto net = make_net();
    const auto mask = torch::full({2, 2}, -std::numeric_limits<float>::infinity()).triu(1);
    auto held = net->register_buffer("mask", mask.clone());
    Session session(world, *net, {});
    EXPECT_TRUE(torch::equal(held, mask)) << "as rank 0 has it";
    session.average_buffers();
    EXPECT_TRUE(torch::equal(held, mask)) << "the mean of equal ones";
  });
}

TEST(Session, StateOfAnotherSessionGoesOnBitForBit) {
  SimWorld({.ranks = 2}).run([](SimPort& world) {
    const SessionOptions options{.strategy = "topk", .set = {"density=0.1"}};
    const auto steps = [&](Session& session, torch::nn::Sequential& net, int first, int end) {
      for (int t = first; t < end; ++t) {
        const auto x = torch::full({2, 6}, 0.1F * static_cast<float>(1 + t) * static_cast<float>(1 + world.rank()));
        net->forward(x).square().sum().backward();
        session.step(1);
      }
    };
    auto whole = make_net();
    NamedTensors saved;
    {
      Session first(world, *whole, options);
      steps(first, whole, 0, 4);
      saved = first.state();
      steps(first, whole, 4, 9);
    }

    auto parts = make_net();
    Session second(world, *parts, options);
    second.set_state(saved);
    EXPECT_EQ(second.steps(), 4);
    steps(second, parts, 4, 9);
    EXPECT_EQ(worst_difference(whole, parts), 0.0);
    test::expect_error<ConfigError>([&] { second.set_state({{"a", torch::zeros(3)}}); }, {"'steps'"});
  });
}

// Trains two workers for some steps; the weights of worker 0.
torch::Tensor trained(const std::string& strategy, bool stage, torch::ScalarType type = torch::kFloat, double lr = 0.1,
                      const std::string& optimizer = "sgd") {
  torch::Tensor result;
  SimWorld({.ranks = 2}).run([&](SimPort& world) {
    auto net = make_net();
    net->to(type);
    SessionOptions options{.strategy = strategy, .optimizer = {.kind = optimizer, .lr = lr}, .stage = stage};
    Session session(world, *net, options);
    for (int t = 0; t < 12; ++t) {
      const auto x = torch::full({2, 6}, 0.1F * static_cast<float>(1 + t) * static_cast<float>(1 + world.rank()));
      const auto loss = net->forward(x.to(type)).to(torch::kFloat).square().sum();
      loss.backward();
      session.step(loss.item<double>());
      if (t == 3) session.zero_grad();
    }
    session.finish();
    std::vector<torch::Tensor> all;
    for (const auto& p : net->parameters()) all.push_back(p.detach().flatten().to(torch::kFloat));
    if (world.rank() == 0) result = torch::cat(all);
  });
  return result;
}

TEST(Session, StagedParametersTrainAsTheOthersBitForBit) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    for (const char* strategy : {"ssgd", "dasgd", "lags", "gs", "topk", "local"}) {
      EXPECT_TRUE(torch::equal(trained(strategy, true, torch::kFloat, 0.01, optimizer),
                               trained(strategy, false, torch::kFloat, 0.01, optimizer)))
          << strategy << ", " << optimizer;
    }
  }
}

TEST(Session, SixteenBitParametersTrainNearlyAsFloat32AndKeepTheirType) {
  const auto begin = trained("ssgd", false, torch::kFloat, 0.0);
  const auto small = trained("ssgd", false, torch::kBFloat16, 1e-3),
             exact = trained("ssgd", false, torch::kFloat, 1e-3);
  EXPECT_GT((exact - begin).abs().max().item<double>(), 1e-2);
  EXPECT_LT((small - exact).abs().max().item<double>(), 0.02);
  EXPECT_TRUE(torch::equal(small, small.to(torch::kBFloat16).to(torch::kFloat))) << "the module has its own type";
}

TEST(Session, AStagedGradientThatIsChangedAfterItLeftIsRefused) {
  SimWorld({.ranks = 2}).run([](SimPort& world) {
    auto net = make_net();
    Session session(world, *net, {.strategy = "ssgd", .stage = true});
    net->forward(torch::ones({2, 6})).sum().backward();
    net->parameters()[0].mutable_grad().mul_(0.5);
    test::expect_error<ConfigError>([&] { session.step(1); }, {"changed between backward() and step()"});
  });
}

TEST(Session, OnlyOneIsAtWorkOnAFabric) {
  SimWorld({.ranks = 2}).run([](SimPort& world) {
    auto net = make_net(), other = make_net();
    Session first(world, *net, {});
    test::expect_error<ConfigError>([&] { Session(world, *other, {}); }, {"another Session", "finish()"});
    first.finish();
    EXPECT_NO_THROW(Session(world, *other, {}));
  });
}

TEST(Session, AnOwnStepMovesTheParametersByTheirMeanGradients) {
  SimWorld({.ranks = 2}).run([](SimPort& world) {
    auto net = make_net(), twin = make_net();
    torch::optim::RMSprop rule(net->parameters(), 0.01), twins(twin->parameters(), 0.01);
    const SessionOptions options{.own_step = [&rule] { rule.step(); }};
    {
      Session session(world, *net, options);
      for (int t = 0; t < 5; ++t) {
        const auto x = torch::full({2, 6}, 0.1F * static_cast<float>(1 + t));
        net->forward(x).square().sum().backward();
        session.step(1);
        twins.zero_grad();
        twin->forward(x).square().sum().backward();
        twins.step();
      }
    }
    EXPECT_LT(worst_difference(net, twin), 1e-6);
    auto other = make_net();
    test::expect_error<ConfigError>([&] { Session(world, *other, {.strategy = "lags", .own_step = [] {}}); },
                                    {"moves the weights itself", "ssgd"});
  });
}

TEST(Session, FinishAveragesTheRunningStatisticsOfBatchNorm) {
  std::vector<torch::Tensor> before(2), after(2);
  SimWorld({.ranks = 2}).run([&](SimPort& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    torch::nn::BatchNorm1d norm(3);
    Session session(world, *norm, {});
    const auto input = torch::linspace(0, 1, 12).view({4, 3}) * static_cast<float>(1 + world.rank());
    if (world.rank() == 1) norm(input);  // it sees other data, and more of it
    norm(input).square().sum().backward();
    session.step(1);
    before[rank] = norm->running_mean.clone();
    session.finish();
    after[rank] = norm->running_mean.clone();
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);  // a counter has no mean: rank 0's
  });
  EXPECT_FALSE(torch::allclose(before[0], before[1]));
  EXPECT_TRUE(torch::allclose(after[0], (before[0] + before[1]) / 2));
  EXPECT_TRUE(torch::equal(after[0], after[1]));
}

// How a rank of a job ended.
struct Ended {
  std::string text;
  std::int64_t steps = 0;
  bool operator==(const Ended&) const = default;
};

// Trains until a step throws E; at step 5 rank 1's samples are not numbers.
template <typename E>
Ended run_into(Fabric& world, torch::nn::Sequential& net, const SessionOptions& options, bool poison,
               const std::function<void(std::int64_t)>& before_step) {
  Session session(world, *net, options);
  try {
    for (std::int64_t t = 0; t < 1000; ++t) {
      before_step(t);
      auto loss = loss_of(net, t, world.rank(), world.size());
      if (poison && t == 5 && world.rank() == 1) loss = loss * std::numeric_limits<float>::quiet_NaN();
      loss.backward();
      session.step(loss.item<double>());
    }
    ADD_FAILURE() << "rank " << world.rank() << " was not stopped";
  } catch (const E& e) {
    session.finish();
    EXPECT_TRUE(poison || session.agreement());  // NaNs may differ in their bits
    return {e.what(), session.steps()};
  }
  return {};
}

void expect_diverged(const std::vector<Ended>& ended) {
  for (const Ended& end : ended) {
    EXPECT_EQ(end, ended[0]);
    for (const char* word : {"rank 1", "step 5 ", "'0.weight'", "--lr"}) {
      EXPECT_NE(end.text.find(word), std::string::npos) << "no '" << word << "' in: " << end.text;
    }
  }
}

TEST(Session, ALossThatIsNotFiniteStopsAllRanksAtTheSameStep) {
  auto nets = make_nets(3);
  std::vector<Ended> ended(3);
  run_ranks(3, [&](MeshFabric& world) {  // local: the others' losses stay finite
    const auto rank = static_cast<std::size_t>(world.rank());
    ended[rank] = run_into<DivergedError>(world, nets[rank], {.strategy = "local", .set = {"period=100000"}}, true,
                                          [](std::int64_t) {});
  });
  expect_diverged(ended);
}

TEST(Session, TheRankAndStepWhereTheTroubleBeganAreNamedThoughAllHaveItByNow) {
  auto nets = make_nets(3);
  std::vector<Ended> ended(3);
  SimWorld({.ranks = 3}).run([&](SimPort& world) {  // ssgd: one step later all weights are spoilt
    const auto rank = static_cast<std::size_t>(world.rank());
    ended[rank] = run_into<DivergedError>(world, nets[rank], {}, true, [&](std::int64_t) {
      world.compute(0.1);  // so slow that reports are exchanged every few steps
    });
  });
  expect_diverged(ended);
}

TEST(Session, ARequestToStopEndsAllRanksAfterTheSameStep) {
  auto nets = make_nets(3);
  std::vector<Ended> ended(3);
  SimWorld({.ranks = 3}).run([&](SimPort& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    ended[rank] = run_into<Interrupted>(world, nets[rank], {.strategy = "local"}, false, [&](std::int64_t t) {
      if (t == 4 && world.rank() == 1) Session::request_stop();
      world.compute(0.3);
    });
  });
  for (const Ended& end : ended) EXPECT_EQ(end, ended[0]);
  EXPECT_GE(ended[0].steps, 4);
  EXPECT_NE(ended[0].text.find("step " + std::to_string(ended[0].steps)), std::string::npos) << ended[0].text;
}

TEST(Session, ARequestToStopIsSpentOnceItHasStoppedAJob) {
  MeshFabric world(Rendezvous{});
  auto net = make_net();
  Session::request_stop();
  run_into<Interrupted>(world, net, {}, false, [](std::int64_t) {});
  train(world, net, {}, 500);  // longer than any interval between two reports
}

TEST(Session, ThePhasesOfAStepAddUpAndItsBytesAreThoseOfTheStrategy) {
  auto nets = make_nets(2);
  run_ranks(2, [&](MeshFabric& world) {
    auto& net = nets[static_cast<std::size_t>(world.rank())];
    Session session(world, *net, {.optimizer = {.lr = 0.25}});
    std::int64_t records = 0;
    const double bytes = MeteredFabric::sum_bytes(session.model().count(), 2);
    session.on_record = [&](const StepRecord& r, const Traffic& traffic) {
      EXPECT_EQ(r.t, records++);
      EXPECT_EQ(r.lr, 0.25);
      EXPECT_EQ(r.loss, static_cast<double>(r.t));
      EXPECT_NEAR(r.compute_seconds + r.update_seconds + r.encode_seconds + r.exposed_seconds, r.seconds, 1e-9);
      for (const double part : {r.compute_seconds, r.encode_seconds, r.exposed_seconds}) EXPECT_GE(part, -1e-9);
      EXPECT_GT(r.update_seconds, 0);
      EXPECT_GT(r.seconds, 0);
      EXPECT_GT(r.wire_seconds, 0);
      EXPECT_DOUBLE_EQ(r.bytes_sent, bytes);
      EXPECT_DOUBLE_EQ(r.bytes_received, bytes);
      EXPECT_EQ(traffic.operations.size(), 1U);
    };
    for (std::int64_t t = 0; t < 20; ++t) {
      loss_of(net, t, world.rank(), 2).backward();
      EXPECT_EQ(session.step(static_cast<double>(t)).t, t);
    }
    EXPECT_EQ(records, 20);
  });
}

TEST(Session, ParametersThatTakeNoPartStayAsTheyAre) {
  SimWorld({.ranks = 2}).run([&](SimPort& world) {
    torch::nn::Sequential net(torch::nn::Linear(6, 4), torch::nn::Linear(4, 4));
    Session session(world, *net, {});
    const auto used = net[0]->as<torch::nn::Linear>(), unused = net[1]->as<torch::nn::Linear>();
    const auto used_before = used->weight.detach().clone(), unused_before = unused->weight.detach().clone();
    for (int t = 0; t < 3; ++t) {
      used->forward(torch::ones({2, 6})).square().sum().backward();
      session.step(1);
    }
    EXPECT_FALSE(torch::equal(used->weight, used_before));
    EXPECT_TRUE(torch::equal(unused->weight, unused_before));
  });
}

TEST(Session, RanksThatWereGivenDifferentThingsAreAllToldWhich) {
  const auto expect_told = [](const auto& options_of, const auto& net_of, const std::vector<std::string>& words) {
    std::vector<torch::nn::Sequential> nets{net_of(0), net_of(1), net_of(2)};
    int told = 0;
    SimWorld({.ranks = 3}).run([&](SimPort& world) {
      auto& net = nets[static_cast<std::size_t>(world.rank())];
      test::expect_error<ConfigError>([&] { Session(world, *net, options_of(world.rank())); }, words);
      ++told;
    });
    EXPECT_EQ(told, 3);
  };
  const auto same_net = [](int) { return make_net(); };
  expect_told(
      [](int rank) {
        return SessionOptions{.strategy = "topk", .set = {rank == 1 ? "density=0.01" : "density=0.005"}};
      },
      same_net, {"rank 0 has density=0.005, rank 1 density=0.01"});
  expect_told([](int rank) { return SessionOptions{.strategy = rank == 2 ? "local" : "ssgd"}; }, same_net,
              {"rank 0 has strategy=ssgd, rank 2 strategy=local"});
  expect_told([](int rank) { return SessionOptions{.optimizer = {.momentum = rank == 0 ? 0.9 : 0.5}}; }, same_net,
              {"rank 0 has momentum=0.9, rank 1 momentum=0.5"});
  expect_told(
      [](int rank) {
        return SessionOptions{.optimizer = {.groups = {{.names = {"*.bias"}, .weight_decay = 0.25 * rank}}}};
      },
      same_net,
      {"rank 0 has parameter group 0=*.bias with lr_factor 1 and weight_decay 0, rank 1 parameter group 0=*.bias with "
       "lr_factor 1 and weight_decay 0.25"});
  expect_told([](int rank) { return SessionOptions{.lr = [rank](std::int64_t) { return 0.25 * (1 + rank); }}; },
              same_net, {"rank 0 has lr at step 0=0.25, rank 1 lr at step 0=0.5"});
  expect_told([](int) { return SessionOptions{}; },
              [](int rank) { return torch::nn::Sequential(torch::nn::Linear(6, rank == 0 ? 4 : 8)); },
              {"rank 0 has parameter 0.weight=[4, 6], rank 1 parameter 0.weight=[8, 6]", "the same model"});
}

// Two ranks and two backward passes, each followed by what `then` does between backward and the next pass.
void clip_before_step(const SessionOptions& options,
                      const std::function<void(Session&, torch::nn::Sequential&)>& then) {
  auto nets = make_nets(2);
  run_ranks(2, [&](MeshFabric& world) {
    auto& net = nets[static_cast<std::size_t>(world.rank())];
    Session session(world, *net, options);
    for (std::int64_t t = 0; t < 2; ++t) {
      loss_of(net, t, world.rank(), 2).backward();
      then(session, net);
    }
  });
}

TEST(Session, AChangeOfAGradientThatHasLeftIsRefusedAndTheCureNamed) {
  const std::vector<std::string> words{"'0.weight'", "clip_norm", "hold()"};
  clip_before_step({}, [&](Session& session, torch::nn::Sequential& net) {
    if (session.steps() == 0) {  // what does not change them is fine
      net[0]->as<torch::nn::Linear>()->weight.grad().norm();
      session.step(1);
      net->zero_grad(false);
      return;
    }
    torch::nn::utils::clip_grad_norm_(net->parameters(), 0.01);
    test::expect_error<ConfigError>([&] { session.step(1); }, words);
  });
  clip_before_step({.set = {"first_bucket_mb=0", "bucket_mb=0"}}, [&](Session& session, torch::nn::Sequential& net) {
    if (session.steps() == 0) return void(session.step(1));
    net->parameters()[2].grad().detach()[1].fill_(7);  // a part of one of them
    test::expect_error<ConfigError>([&] { session.step(1); }, {"'2.weight'"});
  });
}

TEST(Session, GradientsThatLeaveInTheStepOrNeverMayBeClipped) {
  constexpr double kClip = 0.05;
  // Each rank clips its own gradient; then they are averaged.
  auto wanted = make_net();
  torch::optim::SGD opt(wanted->parameters(), torch::optim::SGDOptions(0.5));
  for (std::int64_t t = 0; t < 5; ++t) {
    std::vector<torch::Tensor> sums;
    for (int rank = 0; rank < 2; ++rank) {
      opt.zero_grad();
      loss_of(wanted, t, rank, 2).backward();
      EXPECT_GT(torch::nn::utils::clip_grad_norm_(wanted->parameters(), kClip), kClip);
      for (std::size_t i = 0; i < wanted->parameters().size(); ++i) {
        const auto half = wanted->parameters()[i].grad() / 2;
        rank == 0 ? sums.push_back(half.clone()) : static_cast<void>(sums[i] += half);
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) wanted->parameters()[i].mutable_grad() = sums[i];
    opt.step();
  }
  auto nets = make_nets(2);
  SimWorld({.ranks = 2}).run([&](SimPort& world) {
    auto& net = nets[static_cast<std::size_t>(world.rank())];
    Session session(world, *net, {.optimizer = {.lr = 0.5, .momentum = 0}});
    for (std::int64_t t = 0; t < 5; ++t) {
      {
        const auto hold = session.hold();
        loss_of(net, t, world.rank(), 2).backward();
      }
      torch::nn::utils::clip_grad_norm_(net->parameters(), kClip);
      session.step(1);
    }
    session.finish();
  });
  for (const auto& net : nets) EXPECT_LT(worst_difference(net, wanted), 1e-6);

  clip_before_step({.strategy = "local"}, [&](Session& session, torch::nn::Sequential& net) {
    torch::nn::utils::clip_grad_norm_(net->parameters(), kClip);
    EXPECT_NO_THROW(session.step(1));
  });
}

TEST(Session, FinishRefusesALossThatIsNotFiniteHoweverShortTheRun) {
  auto nets = make_nets(2);
  run_ranks(2, [&](MeshFabric& world) {
    auto& net = nets[static_cast<std::size_t>(world.rank())];
    Session session(world, *net, {.strategy = "local"});
    loss_of(net, 0, world.rank(), 2).backward();
    session.step(world.rank() == 1 ? std::nan("") : 1.0);
    test::expect_error<DivergedError>([&] { session.finish(); }, {"rank 1", "step 0"});
  });
}

constexpr std::array<std::int64_t, 3> kBatches = {5, 7, 6};  // by rank

// Three ranks with as many batches as they have, or (`by_hand`) all with 7, of which the missing ones have no gradient.
// Returns rank 0's weights; they are everybody's.
torch::Tensor train_unevenly(const SessionOptions& options, bool by_hand) {
  auto nets = make_nets(3);
  run_ranks(3, [&](MeshFabric& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    Session session(world, *nets[rank], options);
    std::vector<std::int64_t> without_data, wanted;
    session.on_record = [&](const StepRecord& record, const Traffic&) {
      if (record.news.find("no data of its own") != std::string::npos) without_data.push_back(record.t);
    };
    for (std::int64_t t = 0; t < (by_hand ? 7 : kBatches[rank]); ++t) {
      if (t < kBatches[rank]) loss_of(nets[rank], t, world.rank(), 3).backward();
      session.step(1);
    }
    for (std::int64_t t = kBatches[rank]; !by_hand && t < 7; ++t) wanted.push_back(t);
    session.finish();
    EXPECT_EQ(session.steps(), 7);
    EXPECT_EQ(without_data, wanted);
    EXPECT_TRUE(session.agreement());
  });
  return weights_of(nets[0]);
}

TEST(Session, ARankWithoutDataTakesPartInTheStepsOfTheOthers) {
  std::vector<SessionOptions> all{{.set = {"first_bucket_mb=0", "bucket_mb=0"}},
                                  {.strategy = "local", .set = {"period=2"}}};
  const Registry registry = Registry::builtin();
  for (const StrategyInfo& info : registry.all()) all.push_back({.strategy = info.name});
  for (const SessionOptions& options : all) {
    SCOPED_TRACE(options.strategy);
    train_unevenly(options, false);
  }
}

TEST(Session, AStepWithoutDataIsOneWithGradientsOfZero) {
  for (const SessionOptions& options :
       {SessionOptions{.optimizer = {.lr = 0.1}},
        SessionOptions{.strategy = "local", .set = {"period=3"}, .optimizer = {.lr = 0.1}}}) {
    SCOPED_TRACE(options.strategy);
    EXPECT_TRUE(torch::equal(train_unevenly(options, false), train_unevenly(options, true)));
  }
}

TEST(Session, AfterJoinAllRanksGoOnFromTheSameStep) {
  auto nets = make_nets(3);
  run_ranks(3, [&](MeshFabric& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    Session session(world, *nets[rank], {});
    for (std::size_t epoch = 0; epoch < 6; ++epoch) {
      for (std::int64_t t = 0; t < kBatches[(rank + epoch) % 3]; ++t) {
        loss_of(nets[rank], session.steps(), world.rank(), 3).backward();
        session.step(1);
      }
      session.join();
      EXPECT_EQ(session.steps(), 7 * static_cast<std::int64_t>(epoch + 1));
      EXPECT_TRUE(session.agreement());
    }
    session.finish();
    EXPECT_EQ(session.steps(), 42);
  });
}

// Rank 0 has no data at all; the others train until all are stopped.
template <typename E>
void stop_while_rank_0_joins(const std::function<double(int rank, std::int64_t t)>& loss) {
  auto nets = make_nets(3);
  std::vector<Ended> ended(3);
  run_ranks(3, [&](MeshFabric& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    Session session(world, *nets[rank], {.strategy = "local"});
    try {
      for (std::int64_t t = 0; rank != 0 && t < 5000; ++t) {
        loss_of(nets[rank], t, world.rank(), 3).backward();
        session.step(loss(world.rank(), t));
      }
      session.finish();
      ADD_FAILURE() << "rank " << rank << " was not stopped";
    } catch (const E& e) {
      session.finish();
      EXPECT_TRUE(session.agreement());
      ended[rank] = {e.what(), session.steps()};
    }
  });
  for (const Ended& end : ended) EXPECT_EQ(end, ended[0]);
}

TEST(Session, ARankWithoutDataStopsWithTheOthers) {
  stop_while_rank_0_joins<Interrupted>([](int rank, std::int64_t t) {
    if (rank == 1 && t == 4) Session::request_stop();
    return 1.0;
  });
  stop_while_rank_0_joins<DivergedError>(
      [](int rank, std::int64_t t) { return rank == 1 && t == 4 ? std::nan("") : 1.0; });
}

TEST(Session, ARankThatLeavesWhileOthersFinishIsNamed) {
  auto nets = make_nets(3);
  const Hub hub(test::hub_for(3));
  const auto errors = run_ranks(hub, 3, [&](MeshFabric& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    Session session(world, *nets[rank], {.strategy = "local"});
    for (std::int64_t t = 0; t < 3; ++t) {
      loss_of(nets[rank], t, world.rank(), 3).backward();
      session.step(1);
    }
    if (rank != 1) session.finish();  // rank 1 ends as by an exception of its own
  });
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_NE(test::message_of<FabricError>(errors[rank]).find("rank 1"), std::string::npos);
  }
}

TEST(Session, AgreementNoticesOneDifferentBit) {
  auto nets = make_nets(2);
  SimWorld({.ranks = 2}).run([&](SimPort& world) {
    Session session(world, *nets[static_cast<std::size_t>(world.rank())], {});
    EXPECT_TRUE(session.agreement());
    float& last = session.model().weights().back();
    if (world.rank() == 1) last = std::nextafter(last, 100.0F);
    EXPECT_FALSE(session.agreement());
  });
}

}  // namespace
}  // namespace slipstream
